"""What an evaluation gives back: values, never sentinels.

A failed evaluation has a `Failure` and no number; a stopped one has the numbers of the stages it reached and the
reason it went no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from workbench.values.agreement import Agreements
from workbench.values.artifact import Toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import added_later, decode, encode
from workbench.values.measurement import Estimate, Measurement, Split, current_name
from workbench.values.reuse import Reuse

Status = Literal["complete", "stopped", "failed"]

STAGES = (
    "check",
    "calibrate",
    "lower",
    "compile",
    "smoke",
    "accuracy_subset",
    "latency_short",
    "accuracy_full",
    "latency_full",
    "service",
)
"""The stages of the pipeline, in order: each costs more than the one before. Where every shape is a compile of its own,
`predict` comes first, over few shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an evaluation has no result.

    Attributes:
        kind: class name of the error.
        reproduce: the command that runs this candidate again.
        transient: True when a second try may succeed; such a failure is not kept in any cache.
    """

    stage: str
    kind: str
    message: str
    reproduce: str
    log_path: str | None = None
    transient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a sound candidate was not measured any further.

    Attributes:
        violations: constraint name → by how much it is violated as far as was measured (> 0), in its unit.
    """

    stage: str
    reason: str
    violations: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Violations by the names that metrics have now: sweeps of before hold others."""
        object.__setattr__(self, "violations", {current_name(name): by for name, by in self.violations.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTiming:
    """Wall time of one stage; `cached` when its result came from the store.

    Attributes:
        compiled: files that the compiler made in it, one run each; `shared` files of the same set that were there
            already. Both 0 where a target does not compile a file for each shape.
    """

    stage: str
    seconds: float
    cached: bool = False
    compiled: int = added_later(0)
    shared: int = added_later(0)


MAX_ATTEMPTS = 2
"""So many attempts a sweep makes at a candidate that fails by no fault of its own, one in each run of the sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an evaluation was made.

    Attributes:
        host: name of the machine.
        card: the device that it was measured on alone, by the machine's name for it; '' where the process saw all.
    """

    host: str
    card: str = ""

    @property
    def words(self) -> str:
        return f"card {self.card} of {self.host}" if self.card else self.host


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` returns for every candidate, whatever became of it.

    Attributes:
        attempt: 1, or more where a sweep tried again after a transient failure; this is the last attempt's outcome.
        cut: what is less in it than the experiment asks for, in words, since the time of the run was short; a sweep
            with more time makes it again.
        reuse: what of the measurement other candidates may take, and what was taken from others.
        prediction: what was predicted before it was measured whole; None where nothing was.
        place: where it was made; None where that was not kept.
        agreement: how far its answers lie from float32; None where nobody measured it.
        overflow: what overflows on its device, in words with the way on; '' where nothing does or nobody looked.
    """

    EARLIER: ClassVar = {"facts": "reuse", "forecast": "prediction"}
    candidate: Candidate
    status: Status
    stage_reached: str
    split: Split
    measurement: Measurement
    stages: tuple[StageTiming, ...]
    toolchain: Toolchain
    started_at: str
    failure: Failure | None = None
    stop: Stop | None = None
    attempt: int = 1
    cut: tuple[str, ...] = added_later(())
    reuse: tuple[Reuse, ...] = added_later(())
    prediction: Prediction | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    place: Place | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    agreement: Agreements | None = added_later(None, stored="fidelity")  # noqa: RUF009  # it gives a dataclass field
    overflow: str = added_later("")

    def __post_init__(self) -> None:
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a failed evaluation, and no other, carries a failure")
        if (self.status == "stopped") != (self.stop is not None):
            raise ValueError("a stopped evaluation, and no other, carries a stop")
        if self.status == "complete" and (self.measurement.accuracy is None or self.measurement.latency is None):
            raise ValueError("a complete evaluation has accuracy and latency")

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.stages)

    @property
    def compiled(self) -> int:
        """Runs of a compiler that takes minutes for each shape."""
        return sum(s.compiled for s in self.stages)

    @property
    def shared(self) -> int:
        """Runs that were saved, since the store had a file that none of its own stages had put there."""
        totals = [s.compiled + s.shared for s in self.stages]
        files = max(totals, default=0)  # a set, which holds what was compiled of it one by one before
        return (files if files > 1 else sum(totals)) - self.compiled if files else 0

    @property
    def deserves_another(self) -> bool:
        """It failed by the machine's moment, and not every attempt is spent: a sweep that goes on tries again."""
        return self.failure is not None and self.failure.transient and self.attempt < MAX_ATTEMPTS

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self), "candidate": self.candidate.to_json()}


def evaluation_from_json(data: dict[str, Any]) -> Evaluation:
    """Rebuild an evaluation from `Evaluation.to_json`.

    Raises:
        DecodeError: the stored form does not fit this version.
    """
    return decode(Evaluation, data, "evaluation", version=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file of a sweep that is gone, or is not what was written.

    Attributes:
        file: relative to the sweep's folder.
        held: what was in it.
        problem: in words that follow the file's name.
        mended: what the next sweep does about it.
        candidate_id, split: whose result it belongs to; None for a file of the whole sweep.
    """

    file: str
    held: str
    problem: str
    mended: str
    candidate_id: str | None = None
    split: Split | None = None

    def words(self, mender: str = "the next sweep") -> str:
        """'evaluations/3f….json (the evaluation of 3f2a91c0d4e5) is missing; the next sweep evaluates it again'"""
        whose = "" if self.candidate_id is None else f" of {self.candidate_id[:12]}"
        return f"{self.file} ({self.held}{whose}) {self.problem}; {mender} {self.mended}"
