"""Measurements that one candidate reuses of another: in the pipeline, and where a target's claim is wrong."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.evaluation.reuse import Reusable, doubtful, reusable_for, stopped_kinds
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.pipeline import evaluate
from workbench.search.sweep import run_sweep
from workbench.targets.base import Array, Feeds, Session
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Quantization, Serving
from workbench.values.measurement import Split
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse

SERVING = Serving(intra_op_threads=1)
PLAIN = Candidate(target="onnxruntime", serving=SERVING)
UNFUSED = replace(PLAIN, compile=OnnxRuntimeCompile(disabled_fusions=("AttentionFusion",)))  # there is none in it
DYNAMIC = replace(PLAIN, quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))
BY_CHANNEL = replace(PLAIN, quantization=Quantization(scheme="dynamic", weight_granularity="channel"))
OTHERS = 40


class Repeating:
    """A session that does its work many times over."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, feeds: Feeds) -> dict[str, Array]:
        for _ in range(OTHERS):
            self.session.run(feeds)
        return self.session.run(feeds)

    def close(self) -> None:
        self.session.close()


class Mistaken(OnnxRuntimeTarget):
    """Claims that all its artifacts take one time; those whose weights are quantized by channel take far more."""

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        return "one for all"

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        session = super().open(artifact, directory, candidate, device=device)
        return Repeating(session) if candidate.quantization.weight_granularity == "channel" else session


class SameAnswers(OnnxRuntimeTarget):
    """Claims that all its artifacts compute the same."""

    def numerics_form(self, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
        return "one for all"


def of_kind(evaluation: Evaluation, kind: str) -> Reuse:
    return next(reuse for reuse in evaluation.reuse if reuse.kind == kind)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Experiment, Bench]]:
    text = EXPERIMENT.replace("constraints: {accuracy_loss_pp: 2.0}\n", "")
    question = read_experiment(write_workspace(tmp_path, experiment=text))
    bench = bench_of(question)
    yield question, bench
    bench.store.close()


def measured(question: Experiment, bench: Bench, candidate: Candidate, reusable: Reusable | None = None) -> Evaluation:
    """Evaluated as a sweep would, and kept as if the machine had been quiet."""
    reusable = reusable or replace(reusable_for(candidate, bench.journal.evaluations(), question.seed), audited=False)
    found = evaluate(question, candidate, bench, reusable=reusable)
    quiet = replace(found.measurement.latency, quiet=True)
    found = replace(found, measurement=replace(found.measurement, latency=quiet))
    bench.journal.write(found)
    return found


def test_a_candidate_takes_the_times_of_one_whose_files_do_the_same_work(opened: tuple[Experiment, Bench]) -> None:
    question, bench = opened
    source = measured(question, bench, PLAIN)

    reuser = measured(question, bench, UNFUSED)
    other = measured(question, bench, DYNAMIC)

    for kind in ("latency", "accuracy"):
        theirs, reuse, apart = (of_kind(each, kind) for each in (source, reuser, other))
        assert (theirs.source, reuse.source, apart.source) == (None, source.candidate.id, None)
        assert theirs.key == reuse.key != apart.key
    assert reuser.measurement.latency == source.measurement.latency
    assert other.measurement.latency != source.measurement.latency
    assert reuser.measurement.accuracy.values == source.measurement.accuracy.values
    cached = {stage.stage for stage in reuser.stages if stage.cached}
    assert {"latency_short", "accuracy_full", "latency_full"} <= cached


def test_answers_that_differ_for_the_first_samples_are_not_reused_whatever_a_target_claims(
    opened: tuple[Experiment, Bench],
) -> None:
    question, honest = opened
    bench = replace(honest, targets={"onnxruntime": SameAnswers()})
    measured(question, bench, DYNAMIC)

    other = measured(question, bench, BY_CHANNEL)

    assert of_kind(other, "accuracy").source is None


def test_the_confirmation_and_the_baseline_measure_themselves(opened: tuple[Experiment, Bench]) -> None:
    question, bench = opened
    source = measured(question, bench, PLAIN)
    reusable = Reusable(sources={reuse.key: source.candidate.id for reuse in source.reuse})

    confirmed = evaluate(question, UNFUSED, bench, split="holdout", gates=False, reusable=reusable)
    baseline = evaluate(question, question.baseline, bench, reusable=reusable)

    assert confirmed.reuse == ()
    assert confirmed.measurement.latency != source.measurement.latency
    assert {reuse.source for reuse in baseline.reuse} == {None}


def test_a_wrong_claim_is_found_by_an_audit_and_what_was_reused_is_measured_anew(
    opened: tuple[Experiment, Bench],
) -> None:
    question, honest = opened
    bench = replace(honest, targets={"onnxruntime": Mistaken()})
    source = measured(question, bench, PLAIN)
    reuser = measured(question, bench, DYNAMIC)
    assert of_kind(reuser, "latency").source == source.candidate.id
    reusable = reusable_for(BY_CHANNEL, bench.journal.evaluations(), question.seed)

    finder = measured(question, bench, BY_CHANNEL, replace(reusable, audited=True))

    audit = of_kind(finder, "latency").audit
    assert (audit.source, audit.agrees) == (source.candidate.id, False)
    assert audit.ratio.value > 2
    known = tuple(bench.journal.evaluations().values())
    assert stopped_kinds(known) == ("onnxruntime latency",)
    assert doubtful(known) == (DYNAMIC,)

    run_sweep(question, bench, trials=3)  # goes on as after a kill: what is doubtful lies in the journal

    again = bench.journal.evaluation(DYNAMIC.id)
    reuse = of_kind(again, "latency")
    assert (reuse.source, reuse.replaces) == (None, source.candidate.id)
    assert doubtful(tuple(bench.journal.evaluations().values())) == ()


def test_who_answers_as_the_baseline_bit_for_bit_loses_exactly_nothing(question: Experiment, warm_bench: Bench) -> None:
    """Threads change no output here; rounding to INT8 does."""
    plain = question.baseline
    threads = replace(plain, serving=Serving(intra_op_threads=2))
    int8 = replace(plain, quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))
    warm_bench.journal.write(evaluate(question, plain, warm_bench))

    found = {
        (one.id, split): evaluate(question, one, warm_bench, split=split, gates=False).measurement.accuracy
        for one in (threads, int8)
        for split in get_args(Split)[1:]
    }

    for (candidate_id, _), accuracy in found.items():
        drop, same = accuracy.comparison.drop_pp, candidate_id != int8.id
        assert ((drop.low, drop.value, drop.high) == (0.0, 0.0, 0.0)) is same
        assert (accuracy.comparison.test == "the same answers") is same
        assert same or drop.low < drop.value < drop.high
