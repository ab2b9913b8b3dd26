"""Reuse in whole sweeps: killed in the middle of a measurement that others would share, and in odd company."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

from tests.evaluations import candidate, evaluation
from tests.search.sweeping import journal_of, start
from tests.tiny import write_workspace
from workbench.evaluation.bench import Bench
from workbench.evaluation.reuse import reusable_for
from workbench.inputs.experiment import Experiment
from workbench.report.rests_on import reuse_sentences
from workbench.search.pipeline import evaluate
from workbench.values.candidate import Quantization, Serving
from workbench.values.measurement import Split
from workbench.values.results import Stop
from workbench.values.reuse import Reuse

KEY = "a" * 64
SAME_WORK = """
version: 1
target: onnxruntime
parameters:
  compile.graph_optimization: {choices: [all, extended]}
  serving.intra_op_threads: {choices: [1, 2]}
"""


def test_a_sweep_killed_while_it_measures_what_others_would_share_goes_on_to_the_same_evaluations(
    tmp_path: Path,
) -> None:
    file = write_workspace(tmp_path, space=SAME_WORK)
    with start(file) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "none latency_full":
                break
        process.kill()
    before = journal_of(file).evaluations()

    with start(file) as process:
        _, errors = process.communicate(timeout=300)

    assert process.returncode == 0, errors
    after = journal_of(file).evaluations()
    assert len(after) == 4
    assert {i: after[i] for i in before} == before
    reused = [(reuse.source, reuse.kind, reuse.key) for e in after.values() for reuse in e.reuse if reuse.source]
    assert reused, "accuracy at least, which no noise keeps from being reused"
    measured = {(i, reuse.kind, reuse.key) for i, e in after.items() for reuse in e.reuse if reuse.source is None}
    assert set(reused) <= measured, "a source has measured it, whatever else it reused itself"


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
        assert accuracy is not None
        assert accuracy.comparison is not None
        drop, same = accuracy.comparison.drop_pp, candidate_id != int8.id
        assert ((drop.low, drop.value, drop.high) == (0.0, 0.0, 0.0)) is same
        assert (accuracy.comparison.test == "the same answers") is same
        assert same or drop.low < drop.value < drop.high


def test_a_source_that_answers_as_the_baseline_says_that_too(question: Experiment, warm_bench: Bench) -> None:
    threads = replace(question.baseline, serving=Serving(intra_op_threads=2))
    warm_bench.journal.write(evaluate(question, question.baseline, warm_bench))
    known = warm_bench.journal.evaluations()

    reused = evaluate(question, threads, warm_bench, reusable=replace(reusable_for(threads, known, 0), audited=False))

    assert {reuse.source for reuse in reused.reuse if reuse.kind == "accuracy"} == {question.baseline.id}
    assert reused.measurement.accuracy is not None
    assert reused.measurement.accuracy.comparison is not None
    assert reused.measurement.accuracy.comparison.test == "the same answers"


def test_one_candidate_has_no_source_and_a_failed_one_is_none() -> None:
    alone = replace(evaluation(threads=1), reuse=(Reuse(kind="latency", key=KEY),))
    infeasible = replace(evaluation(threads=2, drop_pp=9.0), reuse=alone.reuse)
    failed = replace(alone, status="stopped", stop=Stop(stage="latency_full", reason="slow"))

    assert reusable_for(alone.candidate, {alone.candidate.id: alone}, seed=0).sources == {}
    assert reusable_for(candidate(threads=3), {failed.candidate.id: failed}, seed=0).sources == {}
    # what breaks a constraint was measured all the same
    assert reusable_for(candidate(threads=3), {infeasible.candidate.id: infeasible}, seed=0).sources == {
        KEY: infeasible.candidate.id
    }
    assert reuse_sentences([alone]) == reuse_sentences([]) == []
