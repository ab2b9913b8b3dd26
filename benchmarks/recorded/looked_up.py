"""An experiment of a recorded table, and its evaluations: looked up, and paid for."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.recorded.tables import Table, choice_places
from workbench.inputs.experiment import CalibrationSettings, Experiment, MeasureSettings, Sampler
from workbench.space.reader import read_space
from workbench.space.space import Assignment, SearchSpace
from workbench.values.artifact import Toolchain
from workbench.values.candidate import Candidate
from workbench.values.measurement import (
    Accuracy,
    AccuracyComparison,
    BatchCurve,
    Estimate,
    Latency,
    Measurement,
    ServiceFigures,
    ServiceResult,
)
from workbench.values.objectives import Constraint, Objective
from workbench.values.results import Evaluation, StageTiming
from workbench.values.service import ServiceLoad, ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The class that decides one measurement."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Evaluation):
    """An evaluation that says its classes."""

    reuse: tuple[Known, ...] = ()


def question_of(table: Table, *, sampler: str, seed: int) -> Experiment:
    """The experiment a table answers, without model and data: a sampler asks for neither."""
    return Experiment(
        name=table.meta["name"],
        about="",
        path=Path("recorded.yaml"),
        workspace=Path(),
        targets=(space := _space(table)).targets,
        model=cast(Any, None),
        dataset=cast(Any, None),
        space=space,
        calibration=CalibrationSettings(),
        objectives=tuple(Objective(metric=m) for m in table.meta["objectives"]),
        constraints=tuple(Constraint(metric=m, limit=v) for m, v in table.meta["constraints"].items()),
        trials=len(table),
        timeout_s=float("inf"),
        measure=MeasureSettings(),
        smoke_cosine=0.9,
        sampler=cast(Sampler, sampler),
        seed=seed,
    )


def _space(table: Table) -> SearchSpace:
    with tempfile.TemporaryDirectory(prefix="workbench-recorded-") as folder:
        path = Path(folder) / "space.yaml"
        path.write_text(table.meta["space"], encoding="utf-8")
        return read_space(path)


class Lookup:
    """A table's candidates by their assignments, and what they cost."""

    def __init__(self, table: Table, experiment: Experiment) -> None:
        self.table, self.experiment = table, experiment
        self._places = table.places(experiment.space)
        whole = table.each_s + table.numerics_s[table.numerics] + table.time_s[table.time]
        self.exhaustive = float(whole.sum())

    def index_of(self, assignment: Assignment) -> int:
        return self._places[choice_places(self.experiment.space, assignment)]

    def bench(self, *, shares: bool, rng: np.random.Generator | None) -> LookupBench:
        return LookupBench(lookup=self, shares=shares, rng=rng)


@dataclass(slots=True, kw_only=True)
class LookupBench:
    """What evaluations of one run share.

    Attributes:
        shares: classes are paid once; otherwise every candidate is paid whole.
        rng: draws each measurement's error; None for none.
    """

    lookup: Lookup
    shares: bool
    rng: np.random.Generator | None
    paid: float = 0.0
    _sources: dict[tuple[str, int], tuple[str, float]] = field(default_factory=dict)

    def evaluate(self, candidate: Candidate, index: int) -> Evaluation:
        table = self.lookup.table
        numerics, time = int(table.numerics[index]), int(table.time[index])
        scored_s, _ = self._paid(("accuracy", numerics), float(table.numerics_s[numerics]), candidate)
        timed_s, error = self._paid(("time", time), float(table.time_s[time]), candidate)
        each_s = float(table.each_s[index])
        self.paid += each_s + scored_s + timed_s
        stages = {"compile": each_s, "accuracy_full": scored_s, "service": timed_s}
        timings = tuple(StageTiming(stage=n, seconds=s, cached=s == 0) for n, s in stages.items())
        return _evaluation(table, candidate, index, error, timings, self._sigma())

    def _sigma(self) -> float:
        return 0.0 if self.rng is None else float(np.std(self.lookup.table.noise))

    def _paid(self, key: tuple[str, int], cost: float, candidate: Candidate) -> tuple[float, float]:
        """What measuring a class takes now, and the logarithm of its error."""
        if self.shares and key in self._sources:
            return 0.0, self._sources[key][1]
        error = 0.0 if self.rng is None or key[0] != "time" else float(self.rng.choice(self.lookup.table.noise))
        self._sources.setdefault(key, (candidate.id, error))
        return cost, error


def _evaluation(
    table: Table, candidate: Candidate, index: int, error: float, stages: tuple[StageTiming, ...], sigma: float
) -> Evaluation:
    """As a sweep would have measured it; of times it has those of the service alone."""
    numerics, time = int(table.numerics[index]), int(table.time[index])
    drop, wide = float(table.drop_pp[numerics]), 1.96 * float(table.drop_error[numerics])
    serves = float(table.throughput_per_s[time]) * float(np.exp(error))
    low, high = serves * float(np.exp(-1.96 * sigma)), serves * float(np.exp(1.96 * sigma))
    call_ms = 1000 / serves if np.isfinite(serves) else 1000.0
    spread = Estimate(value=call_ms, low=call_ms * low / serves, high=call_ms * high / serves)
    p99 = float(table.p99_ms[time])
    figures = ServiceFigures(
        kind="predicted",
        settings=ServiceSettings(),
        load=ServiceLoad(concurrency=1),
        requests=1,
        throughput_per_s=Estimate(value=serves, low=low, high=high),
        p50_ms=spread,
        p95_ms=spread,
        p99_ms=Estimate(value=p99, low=p99, high=p99),
        mean_batch=1.0,
        padding_share=0.0,
    )
    measurement = Measurement(
        accuracy=Accuracy(
            primary="accuracy",
            values={"accuracy": float(table.accuracy[numerics])},
            samples=int(table.meta["samples"]),
            split="validation",
            comparison=AccuracyComparison(
                drop_pp=Estimate(value=drop, low=drop - wide, high=drop + wide), p_value=1.0, test="recorded"
            ),
        ),
        latency=Latency(
            batch=1,
            samples=1,
            p50_ms=spread,
            p95_ms=call_ms,
            p99_ms=None,
            mean_ms=call_ms,
            throughput_per_s=serves,
            speedup=Estimate(value=1.0, low=1.0, high=1.0),
            baseline_p50_ms=call_ms,
            quiet=True,
            verdict="recorded",
        ),
        service=ServiceResult(
            curve=BatchCurve(points=(), stepped=False, threads=1, clock="host"),
            best=figures if np.isfinite(serves) else None,
            closest=figures,
            untuned=figures,
            tried=1,
        ),
    )
    return Told(
        candidate=candidate,
        status="complete",
        stage_reached="service",
        split="validation",
        measurement=measurement,
        stages=stages,
        toolchain=Toolchain(target=candidate.target, components={}, device="recorded", emulated=False),
        started_at="",
        reuse=(Known(kind="accuracy", key=str(numerics)), Known(kind="curve", key=str(time))),
    )
