"""What was predicted of a candidate before it was measured whole, and how an audit judged it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.values.measurement import Estimate

SLACK = 0.01
"""Of an audit: the interval of a median says nothing of how calls of another moment differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTime:
    """One call at a compiled shape, at the speed that the sweep began with; length 0 where samples are no sequences."""

    batch: int
    length: int
    p50_ms: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeAudit:
    """A shape that was compiled and timed only to see whether its time had been predicted well.

    Attributes:
        agrees: whether the measured interval and the predicted one overlap, but for `SLACK`.
    """

    batch: int
    length: int
    predicted_ms: Estimate
    measured_ms: Estimate

    @property
    def agrees(self) -> bool:
        reach = 1 + SLACK
        predicted, measured = self.predicted_ms, self.measured_ms
        return predicted.low <= measured.high * reach and measured.low <= predicted.high * reach


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

    structure: str
    times: tuple[ShapeTime, ...] = ()
    shapes: int = 0
    throughput_per_s: Estimate | None = None
    accuracy: float | None = None
    basis: str = ""
    audit: ShapeAudit | None = None
