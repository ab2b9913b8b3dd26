"""INT8 beside float comes first: who, how soon it is told, and that without it nothing is recommended."""

from dataclasses import replace
from pathlib import Path

import workbench
from tests.search.sweeping import SMALL_SPACE, Recorder
from tests.tiny import SPACE, write_workspace
from workbench.api.opening import journal_of, summary_of
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report.recommendation import headline
from workbench.search.first_look import LOOKED, first_int8
from workbench.search.sweep import run_sweep
from workbench.values.measurement import Measurement
from workbench.values.results import Evaluation, Failure


def schemes(experiment: Experiment) -> list[object]:
    return [assignment["quantization.scheme"] for _, assignment in first_int8(experiment)]


def test_presets_of_two_schemes_come_first_and_without_presets_each_scheme_with_first_choices(tmp_path: Path) -> None:
    again = SPACE + "  - {name: static-mse, quantization.scheme: static, quantization.algorithm: mse}\n"
    named = read_experiment(write_workspace(tmp_path / "named", space=again))
    bare = read_experiment(write_workspace(tmp_path / "bare", space=SPACE.partition("presets:")[0]))
    one = read_experiment(write_workspace(tmp_path / "one", space=SMALL_SPACE))
    floats = SMALL_SPACE.replace("choices: [none, dynamic]", "choices: [none]").partition("forbid:")[0]
    none = "\n".join(line for line in floats.splitlines() if "weight_granularity" not in line)

    assert [name for name, _ in first_int8(named)] == ["dynamic", "static"]
    assert [name for name, _ in first_int8(bare)] == ["", ""]
    assert schemes(bare) == ["dynamic", "static"]
    assert schemes(one) == ["dynamic"]
    assert schemes(read_experiment(write_workspace(tmp_path / "none", space=none))) == []


def test_a_look_at_each_is_told_before_anything_is_measured_and_is_kept_nowhere(
    question: Experiment, warm_bench: Bench
) -> None:
    recorder, told = Recorder(), list[tuple[Evaluation, int]]()

    run_sweep(
        question,
        warm_bench,
        trials=3,
        listeners=(recorder,),
        looked=lambda look: told.append((look, len(recorder.seen))),
    )

    assert [number for _, number in told] == [0, 0]
    looks = [look for look, _ in told]
    assert [look.candidate.quantization.scheme for look in looks] == ["dynamic", "static"]
    for look in looks:
        assert (look.stop.reason if look.stop else "") == LOOKED
        accuracy, latency = look.measurement.accuracy, look.measurement.latency
        assert accuracy.comparison.drop_pp.low <= accuracy.comparison.drop_pp.value <= accuracy.comparison.drop_pp.high
        assert latency.samples >= question.measure.short_calls
    order = [evaluation.candidate.id for evaluation, _ in recorder.seen]
    looks.sort(key=lambda look: -look.measurement.latency.speedup.value)
    assert order == [question.baseline.id, *(look.candidate.id for look in looks)], "the faster one comes first"
    kept = warm_bench.journal.evaluations()
    assert set(kept) == set(order)
    assert LOOKED not in [e.stop.reason for e in kept.values() if e.stop is not None]

    told.clear()
    run_sweep(question, warm_bench, trials=4, looked=lambda look: told.append((look, 0)))
    assert told == []


def test_nothing_is_recommended_before_an_int8_candidate_was_measured(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)

    alone = workbench.sweep(file, trials=1)
    assert alone.summary.recommended is None
    assert headline(alone.summary).startswith("Nothing is recommended: no INT8 candidate was measured")
    assert "with more --trials" in alone.summary.why_none

    both = workbench.sweep(file, trials=2)
    assert both.summary.recommended is not None


def test_int8_that_fails_is_named_with_its_failure(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    workbench.sweep(file, trials=2)
    question = read_experiment(file)
    journal = journal_of(question)
    int8 = next(e for e in journal.evaluations().values() if e.candidate.quantization.scheme != "none")
    failure = Failure(stage="lower", kind="CompileError", message="no kernel", reproduce="workbench evaluate")
    failed = replace(int8, status="failed", stage_reached="lower", measurement=Measurement(), failure=failure)
    journal.write(failed)

    why = summary_of(question, journal).why_none

    assert "1 failed, the first with CompileError at lower: no kernel" in why
    assert "workbench inspect" in why
