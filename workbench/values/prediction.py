"""What was predicted of a candidate before it was measured whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workbench.values.measurement import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTime:
    """One call at a compiled shape, at the speed that the sweep began with; length 0 where samples are no sequences."""

    batch: int
    length: int
    p50_ms: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The service of a candidate, predicted from the few shapes of its set that were compiled.

    Attributes:
        structure: what decides the times of the compiled files besides their shape, 64 hex digits; found in what the
            compiler is given, not in what it makes.
        times: of the shapes that were compiled for this; empty where the whole set was.
        shapes: how many the set has.
        throughput_per_s: of the best service, from the slowest to the quickest that the times allow; None where nothing
            was predicted.
        accuracy: as measured before, under the objective's name and sign.
        basis: what the prediction rests on, in words.
    """

    EARLIER: ClassVar = {"audit": None}
    structure: str
    times: tuple[ShapeTime, ...] = ()
    shapes: int = 0
    throughput_per_s: Estimate | None = None
    accuracy: float | None = None
    basis: str = ""
