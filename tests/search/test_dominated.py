"""A short look at a candidate's times, and what it would serve by what others were timed at and serve."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluations import estimate, evaluation, service
from tests.session_clock import Clock
from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.api.opening import summary_of
from workbench.evaluation import measure
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.prediction import curve, together
from workbench.search.front import audit_failed, audit_words, is_deferred
from workbench.search.stages import dominated
from workbench.search.stages.dominated import FEWEST, Served, how, predicted_rate, served
from workbench.search.sweep import run_sweep
from workbench.targets.base import Array, Feeds, Session
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.prediction import Prediction
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
    assert isinstance(candidate.compile, OnnxRuntimeCompile)
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
