"""What a compiled model's operators read and wrote on the device: values, in words that no vendor owns.

A compiler fuses nodes into operators, and computes them in types of its own. A `Recording` says of every operator that
ran which nodes of the float model it covers and which tensors of that model its results are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from workbench.targets.base import Array, Feeds
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTensor:
    """One tensor as the device held it.

    Attributes:
        dtype: as stored, such as float16 or int8.
        load: reads the values, in the stored type (bfloat16 as float32); MeasureError where the file is damaged.
        tensor: of the float model, whose numbers these are; '' where that is not known, and for constants.
        maker: operator that made it; '' for constants and where it is not known.
        scale, offset: of whole numbers that stand for floats: stored = round(value · scale) + offset; None for others.
    """

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], Array]
    tensor: str = ""
    maker: str = ""
    scale: float | None = None
    offset: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float16", "float32", "float64", "bfloat16")

    def floats(self) -> Array | None:
        """The numbers that it stands for, float32; None for whole numbers that stand for no floats."""
        if self.is_float:
            return self.load().astype(np.float32)
        if not self.scale:
            return None
        return (self.load().astype(np.float32) - np.float32(self.offset)) / np.float32(self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOperator:
    """One operator that ran.

    Attributes:
        name, op_type: in the compiled model.
        nodes: that it covers, as the compiler was given them.
        float_nodes: those of the float model among them, in its order.
        layers: quantized layers that it computes, or whose input it quantizes, by their float names.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    float_nodes: tuple[str, ...]
    layers: tuple[str, ...]
    inputs: tuple[DeviceTensor, ...]
    outputs: tuple[DeviceTensor, ...]

    @property
    def types(self) -> str:
        """What it reads and writes, such as 'float16, int8 → float16'."""
        read = dict.fromkeys(t.dtype for t in self.inputs)
        return f"{', '.join(read)} → {', '.join(dict.fromkeys(t.dtype for t in self.outputs))}"

    @property
    def whole(self) -> bool:
        """Whether it reads or gives integers of 8 bits."""
        return any(tensor.dtype in ("int8", "uint8") for tensor in (*self.inputs, *self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCall:
    """One execution: what it was fed, and its operators in the order in which they ran."""

    fed: Mapping[str, DeviceTensor]
    operators: tuple[DeviceOperator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Attributes:
    about: what ran, for people.
    folder: where the device's own files lie.
    emulated: some of them are an emulator's.
    """

    about: str
    folder: Path
    emulated: bool
    calls: tuple[DeviceCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What a user writes to have operators computed otherwise.

    Attributes:
        setting: which setting or file the lines belong to.
        lines: as they are written there; every one was read by the target's own reader.
        what: what they do, in words.
    """

    setting: str
    lines: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One way to have operators of a candidate computed otherwise.

    Attributes:
        candidate: the same with that change.
        setting: that changes, such as compile.keep_dtype.
        what: it does, in words.
        wider: whether it may be made for more operators where these alone do not do.
    """

    candidate: Candidate
    setting: str
    what: str
    wider: bool = False


class LooksInside(Protocol):
    """A target whose compiled files can be watched operator by operator."""

    def record(
        self, files: Path, artifact: Artifact | None, model: Model, feeds: Sequence[Feeds], to: Path
    ) -> Recording:
        """Run compiled files with everything watched; slow, and in a process of its own.

        Args:
            files: folder of the artifact, or one compiled file.
            artifact: None where nothing but the files is known.
            model: the float model that they were made from.
            to: folder for the device's files, which `read` takes again; made when missing.

        Raises:
            ToolchainError, MeasureError: it cannot be run, or what it left cannot be read.
        """

    def is_recording(self, folder: Path) -> bool:
        """Whether a folder holds what a device left, rather than compiled files."""

    def read(self, folder: Path, model: Model) -> Recording:
        """What a device left before, here or elsewhere.

        Raises:
            ConfigError: nothing usable is there, or it is of another model.
            MeasureError: a file is damaged, or beyond a bound.
        """

    def remedies(self, beyond_half: Sequence[DeviceOperator], layers: Sequence[str]) -> tuple[Remedy, ...]:
        """How to keep operators whose numbers a half cannot hold, and quantized layers, in the float model's type."""

    def changes(self, candidate: Candidate, operators: Sequence[DeviceOperator]) -> tuple[Change, ...]:
        """Candidates that compute these operators, and what they have to with them, in more than half precision."""
