"""What a comparison with a compiled model on its device finds: the first bad operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.targets.inside import Remedy
from workbench.values.documents.canonical import added_later

Cause = Literal["range", "integers", "rounding"]
"""Numbers that a half cannot hold; a quantized layer's scales; or rounding, the operator's own or what it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadScale:
    """A quantized activation whose scale loses the float model's values.

    Attributes:
        layer: that computes with it.
        low, high: what its whole numbers can stand for.
        magnitude: largest |value| of the float model.
        relative_error: of the float model's values written with this scale, and read again.
    """

    layer: str
    tensor: str
    low: float
    high: float
    magnitude: float
    relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBad:
    """The first operator whose result is beyond the limits while all it reads is within them.

    Attributes:
        operator, op_type: in the compiled model.
        nodes: of the float model that it covers.
        types: it reads and writes.
        tensor: of the float model, whose numbers are wrong.
        magnitude: largest |value| of the float model there.
        not_finite, relative_error: of the device's values.
        kept: operators that a half cannot hold; itself where it rounds too much.
        layers: quantized ones behind it; those whose scales lose values, where there are such.
        scales: those of its INT8 inputs and outputs that lose values; empty where others are to blame, as weights.
        files: NPY files of its inputs and outputs as the device had them, and of the float model's.
    """

    operator: str
    op_type: str
    nodes: tuple[str, ...]
    types: str
    tensor: str
    cause: Cause
    magnitude: float
    not_finite: int
    relative_error: float
    mends: tuple[Remedy, ...]
    scales: tuple[BadScale, ...]
    files: tuple[str, ...]
    kept: tuple[str, ...] = added_later(())
    layers: tuple[str, ...] = added_later(())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFindings:
    """Attributes:
    operators: that ran in a call.
    folder: of the device's own files.
    """

    about: str
    emulated: bool
    operators: int
    folder: str
    first_bad: FirstBad | None = None
