"""Model: an ONNX file, what it takes and gives, and its identity. Reading one is `workbench.graph.read.read_model`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One model input or output.

    Attributes:
        dtype: NumPy's name, such as 'int64' or 'float32'.
        shape: an int for a fixed dimension, a str for a named symbolic one, None for an unnamed one.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A float ONNX model on disk.

    Attributes:
        sha256: over the ONNX file and, in name order, every external data file it refers to.
        external_files: absolute paths of external data, empty for a self-contained file.
        opset: of the default domain.
    """

    path: Path
    sha256: str
    size_bytes: int
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    external_files: tuple[Path, ...] = ()
