"""Model: an ONNX file, what it takes and gives, and its identity. Reading one is `workbench.graph.read.read_model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Sizes = tuple[int | str | None, ...]
"""A declared shape: an int for a fixed dimension, a str for a named symbolic one, None for an unnamed one."""


def rows_of_a_call(inputs: Iterable[Sizes]) -> int | None:
    """How many samples every call takes, by the inputs' shapes; None where that is free."""
    return next((shape[0] for shape in inputs if shape and isinstance(shape[0], int)), None)


def counts_samples(output: Sizes, inputs: Sequence[Sizes]) -> bool:
    """Whether an output has a row for each sample, by what it and the inputs declare: a size that its first axis has in
    one call by chance says nothing. One without a shape is taken to."""
    if not output:
        return True
    if isinstance(output[0], int):
        return output[0] == rows_of_a_call(inputs)
    return any(shape and not isinstance(shape[0], int) for shape in inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One model input or output.

    Attributes:
        dtype: NumPy's name, such as 'int64' or 'float32'.
    """

    name: str
    dtype: str
    shape: Sizes


def axes_text(shape: Sequence[int | str | None]) -> str:
    """A shape for people: '?' stands for a size without a name."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationStep:
    """One change on the way from the user's file to the prepared one.

    Attributes:
        words: what was done to what, as a sentence.
        figures: what the proof measured, by name; empty where only declarations changed.
    """

    name: str
    words: str
    figures: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file a prepared model was made from.

    Attributes:
        inputs, outputs: as the source has them.
    """

    path: Path
    sha256: str
    size_bytes: int
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[PreparationStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A float model on disk: an ONNX file, or the folder of a language model.

    Attributes:
        sha256: over the ONNX file and, in name order, every external data file it refers to; of a folder over all that
            decides its numbers and its tokens.
        external_files: absolute paths of external data, empty for a self-contained file.
        opset: of the default domain; 0 of a folder.
        origin: the user's file, where this one was made from it; None where this is the user's file.
    """

    path: Path
    sha256: str
    size_bytes: int
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    external_files: tuple[Path, ...] = ()
    origin: Origin | None = None

    @property
    def is_language_model(self) -> bool:
        """Whether it is the folder of a language model rather than an ONNX file."""
        return self.opset == 0

    @property
    def fixed_batch(self) -> int | None:
        """How many samples every call takes; None where that is free."""
        return rows_of_a_call(spec.shape for spec in self.inputs)
