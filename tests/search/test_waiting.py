"""Candidates that wait: by a short look at their times or by a few of their shapes; which are measured whole."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluations import candidate, estimate, evaluation, service
from tests.session_clock import Clock
from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.api.opening import summary_of
from workbench.evaluation import measure
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.prediction import curve, together
from workbench.search.front import (
    audit_failed,
    audit_words,
    is_deferred,
    may_be_on_front,
    predicted_errors,
    predicted_numbers,
)
from workbench.search.stages import dominated
from workbench.search.stages.dominated import FEWEST, Served, how, predicted_rate, served
from workbench.search.sweep import run_sweep
from workbench.targets.base import Array, Feeds, Session
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.measurement import Estimate
from workbench.values.objectives import Objective
from workbench.values.prediction import Prediction, ShapeAudit
from workbench.values.results import Evaluation, Stop
from workbench.values.reuse import Reuse

EXACT = estimate(1.5, 0.0)


def line(speedups: list[float], *, level: float = 300.0, slope: float = 0.9, how: str = "2 threads") -> list[Served]:
    return [Served(how=how, speedup=s, throughput_per_s=level * s**slope) for s in speedups]


def test_the_line_is_found_where_there_is_one() -> None:
    known = line([0.8, 1.0, 1.7, 2.2, 2.5]) + line([0.7, 1.9], level=450.0, how="1 thread")

    two, one = predicted_rate(known, "2 threads", EXACT), predicted_rate(known, "1 thread", EXACT)

    assert two.value == pytest.approx(300 * 1.5**0.9)
    assert one.value == pytest.approx(450 * 1.5**0.9), "one slope, a level for each way of serving"
    assert two.high == pytest.approx(two.value), "no point is off the line"


def test_too_little_tells_nothing() -> None:
    enough = FEWEST + 2
    known = line([1.0 + 0.1 * i for i in range(enough)])

    assert predicted_rate(known, "2 threads", EXACT) is not None
    assert predicted_rate(known[:-1], "2 threads", EXACT) is None
    assert predicted_rate(known, "1 thread", EXACT) is None, "nobody was served so"
    assert predicted_rate(line([1.5] * 9), "2 threads", EXACT) is None, "one speed gives no slope"


@given(st.integers(0, 10_000))
def test_ninety_eight_of_a_hundred_intervals_hold(seed: int) -> None:
    """As many as the interval says, of candidates that scatter about a line: counted over draws of one seed."""
    rng = np.random.default_rng(seed)
    held = 0
    for _ in range(60):
        speedups = rng.uniform(0.7, 2.5, size=9)
        noise = rng.normal(0, 0.04, size=9)
        all_known = [
            Served(how="x", speedup=s, throughput_per_s=300 * s**0.8 * math.exp(e))
            for s, e in zip(speedups, noise, strict=True)
        ]
        found = predicted_rate(all_known[:-1], "x", estimate(all_known[-1].speedup, 0.0))
        held += found.low <= all_known[-1].throughput_per_s <= found.high
    assert held >= 54  # of 60 at 98 %, fewer than one such draw in a hundred thousand


def test_what_was_reused_or_stopped_draws_no_line() -> None:
    own = evaluation(threads=1, speedup=2.0, served=service(600))
    reused = replace(evaluation(threads=2, served=service(600)), reuse=(Reuse(kind="curve", key="k", source="other"),))
    stopped = evaluation(threads=8, stop=Stop(stage="accuracy_full", reason="r"))

    found = served([own, reused, stopped])

    assert found == [Served(how=how(own.candidate), speedup=2.0, throughput_per_s=600.0)]


def waiting(per_s: float, most: float, *, accuracy: float = 0.95, complete: bool = False) -> Evaluation:
    prediction = Prediction(structure="", throughput_per_s=replace(estimate(per_s), high=most), accuracy=accuracy)
    stop = None if complete else Stop(stage="predict", reason="predicted")
    kept = evaluation(scheme="dynamic", accuracy=accuracy, stop=stop, served=service(per_s) if complete else None)
    return replace(kept, prediction=prediction)


def test_an_audit_counts_what_was_measured_all_the_same() -> None:
    held = waiting(500, 550, complete=True)
    left = waiting(400, 450)
    wrong = replace(waiting(900, 600, complete=True))

    assert is_deferred(left)
    assert not is_deferred(held)
    assert not audit_failed([held, left])
    assert audit_failed([held, left, wrong])
    assert "2 candidates were predicted before they were timed whole, 1 of them left at that" in audit_words(
        [held, left]
    )
    assert "serves 900/s, predicted were 600 at most), so everything is timed whole" in audit_words([wrong, left])


SPACE = """
version: 1
target: onnxruntime
parameters:
  compile.fusions.AttentionFusion: {choices: ["on", "off"]}
  compile.fusions.BiasGeluFusion: {choices: ["on", "off"]}
  compile.fusions.FastGeluFusion: {choices: ["on", "off"]}
  serving.intra_op_threads: {choices: [1]}
service: {max_batch_size: [1, 8], batch_timeout_ms: [5], workers: [1]}
"""
QUESTION = (
    EXPERIMENT.replace("calls: 60, short_calls: 20", "calls: 20, short_calls: 20")
    .replace("[latency_p50_ms, accuracy]", "[service_throughput_per_s, accuracy]")
    .replace(
        "budget: {trials: 6, timeout: 1h}",
        """budget: {trials: 8, timeout: 1h}
sampler: random
service: {concurrency: 8, curve: 0.1s, confirm: 0, host: {request_ms: 0.05, batch_ms: 0.02, origin: a test}}""",
    )
)
BITS = ("AttentionFusion", "BiasGeluFusion", "FastGeluFusion")


class Timed:
    """A session that takes so long, and a share of that where it is given several rows."""

    def __init__(self, session: Session, clock: Clock, takes_ms: float, batched: float = 1.0) -> None:
        self.session, self.clock, self.takes_ms, self.batched = session, clock, takes_ms, batched

    def run(self, feeds: Feeds) -> dict[str, Array]:
        (array,) = feeds.values()
        self.clock.call(self.takes_ms * (self.batched if len(array) > 1 else 1.0))
        return self.session.run(feeds)

    def close(self) -> None:
        self.session.close()


def milliseconds(candidate: Candidate) -> float:
    """The more, the more fusions are off: 2, 2.5, … 5.5; all answers are the same."""
    return 2.0 + 0.5 * sum(2 ** BITS.index(name) for name in candidate.compile.disabled_fusions)


class Slower(OnnxRuntimeTarget):
    """Each of its candidates takes a time of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        return f"{milliseconds(candidate)} ms"

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        session = super().open(artifact, directory, candidate, device=device)
        return Timed(session, self.clock, milliseconds(candidate), self.batched(candidate))

    def batched(self, candidate: Candidate) -> float:
        return 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (measure, curve, together):
        monkeypatch.setattr(module, "time", found)  # the clock that calls are timed by, and nothing else
    return found


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Experiment, Bench]]:
    question = read_experiment(write_workspace(tmp_path, experiment=QUESTION, space=SPACE))
    bench = bench_of(question)
    yield question, bench
    bench.store.close()


def test_what_serves_less_for_certain_is_not_timed_whole_and_some_of_it_is_all_the_same(
    opened: tuple[Experiment, Bench], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, honest = opened
    bench = replace(honest, targets={"onnxruntime": Slower(clock)})
    drawn: list[Candidate] = []

    def third(candidate: Candidate, seed: int, what: str) -> bool:
        drawn.append(candidate)
        return len(drawn) == 2

    monkeypatch.setattr(dominated, "is_audited", third)  # the draw, not the audit

    run_sweep(question, bench)

    found = bench.journal.evaluations()
    assert len(found) == 8
    left = [e for e in found.values() if is_deferred(e)]
    assert len(left) == len(drawn) - 1 >= 1, "once five are known, who takes longer than the baseline waits"
    audited = found[drawn[1].id]
    assert audited.status == "complete"
    assert audited.prediction is not None
    assert not audit_failed(found.values())
    for each in left:
        assert each.stop.reason.startswith("predicted to serve ")
        assert "latency_full" not in {stage.stage for stage in each.stages}
        assert milliseconds(each.candidate) > milliseconds(question.baseline)
    assert run_sweep(question, bench).new == 0
    told = "predict: by what was predicted, others serve more and are as accurate"
    assert summary_of(question, bench.journal).stops == {told: len(left)}


class _Question:
    """What `may_be_on_front` asks of an experiment."""

    objectives = (Objective(metric="service_throughput_per_s"), Objective(metric="accuracy"))
    constraints = ()
    baseline = candidate(threads=9)


ASKED = cast(Experiment, _Question())


def about(value: float, spread: float = 0.1) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def member(rate: float, accuracy: float, threads: int = 1) -> Evaluation:
    return evaluation(threads=threads, accuracy=accuracy, served=service(rate))


def set_waiting(
    rate: float, accuracy: float, keep_float: int, audit: ShapeAudit | None = None, **stopped: Any
) -> Evaluation:
    prediction = Prediction(
        structure="s", shapes=12, throughput_per_s=about(rate), accuracy=accuracy, basis="", audit=audit
    )
    stop = Stop(stage="predict", reason="predicted", **stopped)
    return replace(evaluation(scheme="static", keep_float=keep_float, stop=stop), prediction=prediction)


def by_id(*found: Evaluation) -> dict[str, Evaluation]:
    return {e.candidate.id: e for e in found}


def test_who_may_be_on_the_front_is_compiled_the_best_first() -> None:
    front = member(900, 0.95)
    quick, slow, exact = set_waiting(1000, 0.94, 0), set_waiting(800, 0.95, 1), set_waiting(500, 0.96, 2)
    near = set_waiting(850, 0.95, 4)  # 935/s at best

    assert may_be_on_front(ASKED, by_id(front, quick, slow, exact, near)) == [quick, near, exact]
    assert may_be_on_front(ASKED, by_id(slow)) == [slow], "nobody is on the front"


def test_what_stopped_for_another_reason_does_not_wait() -> None:
    stopped = set_waiting(1000, 0.9, 0, violations={"accuracy_drop_pp": 1.0})

    assert not is_deferred(stopped)
    assert predicted_numbers(stopped) == {}
    assert predicted_numbers(set_waiting(1000, 0.9, 0)) == {"service_throughput_per_s": 1000, "accuracy": 0.9}
    assert predicted_errors(set_waiting(1000, 0.9, 0)) == {"service_throughput_per_s": 200 / 3.92}
    assert predicted_errors(stopped) == {}


def test_an_audit_that_fails_has_everything_compiled_and_is_said() -> None:
    front, slow = member(900, 0.95), set_waiting(100, 0.5, 1)
    held = ShapeAudit(batch=8, length=64, predicted_ms=about(1.0), measured_ms=about(1.05, 0.01))
    wrong = replace(held, measured_ms=about(2.0, 0.01))

    assert may_be_on_front(ASKED, by_id(front, slow, set_waiting(100, 0.5, 2, held))) == []
    assert "1 of the predictions was audited and holds" in audit_words([front, set_waiting(100, 0.5, 2, held)])
    found = by_id(front, slow, set_waiting(100, 0.5, 2, wrong))
    assert audit_failed(found.values())
    assert slow in may_be_on_front(ASKED, found)
    assert "batch 8, length 64 took 2 ms, predicted were [0.9, 1.1]" in audit_words([*found.values()])


def test_a_set_that_serves_more_than_was_thought_possible_fails_too() -> None:
    prediction = Prediction(structure="s", shapes=12, throughput_per_s=about(500), accuracy=0.95)

    assert audit_failed([replace(member(900, 0.95), prediction=prediction)])
    assert not audit_failed([replace(member(400, 0.95), prediction=prediction)])
