"""A language model is swept as any model is: same loop, journal, report; what differs is how it is evaluated."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.llm_workspace import language_bench, words, write_language_workspace
from workbench.api.opening import summary_of
from workbench.api.report import report
from workbench.commands.capacity import plan_capacity
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, load_outcomes, size, take
from workbench.report import lines, to_json
from workbench.search.pipeline import evaluate
from workbench.search.stages.language import certainly_worse, looks
from workbench.search.sweep import run_sweep
from workbench.targets.ascend_llm.description import LlmSettings
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.evidence import level_of
from workbench.values.metrics import metrics
from workbench.values.results import Evaluation

Swept = tuple[Experiment, Bench, dict[str, Evaluation]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    file = write_language_workspace(tmp_path_factory.mktemp("llm"))
    question, bench = language_bench(file)
    (bench.journal.root / "sweep.json").write_text("{}")
    run_sweep(question, bench)
    return question, bench, bench.journal.evaluations()


def of(**given: object) -> Candidate:
    return Candidate(
        target="ascend-llm",
        quantization=Quantization(scheme="recipe"),
        compile=LlmSettings(**{"qkv": "W8A8", "o": "W8A8", "gate_up": "W8A8", "down": "W8A8", **given}),  # type: ignore[arg-type]  # values of all kinds
    )


def test_baseline_and_presets_come_first_and_every_figure_is_there(swept: Swept) -> None:
    question, _, found = swept
    assert len(found) == question.trials
    first = list(found.values())[:3]
    assert first[0].candidate.id == question.baseline.id
    assert {e.status for e in first} == {"complete"}
    for evaluation in first:
        numbers = metrics(evaluation)
        assert numbers["perplexity"] == pytest.approx(math.exp(numbers["nll"]))
        assert numbers["kl"] >= 0
        for name in ("prefill_ms", "decode_ms", "kv_kb_per_token", "size_mb"):
            assert numbers[name] > 0
        assert level_of(evaluation, "decode_ms") == "modelled"
        assert level_of(evaluation, "perplexity") == "measured"


def test_outcomes_are_kept_window_by_window_and_the_loss_is_paired_with_floats(swept: Swept) -> None:
    question, bench, found = swept
    complete = [e for e in found.values() if e.status == "complete" and e.candidate.id != question.baseline.id]
    kept = {
        i: load_outcomes(bench.journal.outcomes(i, "validation"))
        for i in (complete[0].candidate.id, question.baseline.id)
    }
    ours, floats = kept.values()
    assert size(ours) == question.dataset.size("validation")
    assert not floats.numerators[:, 1].any()  # the float model's own divergence
    accuracy = complete[0].measurement.accuracy
    nats = (ours.numerators[:, 0] - floats.numerators[:, 0]).sum() / ours.denominators[:, 0].sum()
    assert accuracy.comparison.drop_pp.value == pytest.approx(100 * math.expm1(nats))
    assert accuracy.comparison.drop_pp.low <= accuracy.comparison.drop_pp.value <= accuracy.comparison.drop_pp.high


def test_the_report_names_modelled_times_and_holds_recipes_against_the_presets(swept: Swept) -> None:
    question, bench, _ = swept
    summary = summary_of(question, bench.journal)
    text = lines(summary)
    assert "modelled, measured nowhere" in text
    assert "against the best preset" in text
    assert "[preset " in text
    assert max(map(len, text.splitlines())) <= 112
    said = to_json(summary)
    assert sum(recipe["against_preset"] is None for recipe in said["recipes"]) == 1
    assert all(
        r["against_preset"]["low"] <= r["against_preset"]["value"] for r in said["recipes"] if r["against_preset"]
    )


def test_a_recipe_that_certainly_loses_too_much_stops_after_a_part_of_the_windows(tmp_path: Path) -> None:
    # values so large that one scale for a tensor leaves nothing of the others
    file = write_language_workspace(tmp_path, constraints={"accuracy_loss": 0.01}, objectives=["perplexity", "size_mb"])
    (tmp_path / "text.txt").write_text(words(96 * 16, 9))
    question, bench = language_bench(file)
    found = evaluate(question, of(weights="mse", qkv="W8A16"), bench)
    assert found.status == "stopped"
    if found.stop.stage == "accuracy_subset":
        assert found.stop.violations["accuracy_loss"] > 0
        assert found.measurement.accuracy.samples < question.dataset.size("validation")
    else:
        assert "accuracy_loss" in found.stop.reason


def test_what_the_model_cannot_take_or_an_engine_would_compute_wrongly_fails_at_its_check(tmp_path: Path) -> None:
    question, bench = language_bench(write_language_workspace(tmp_path, family="qwen3"))
    for wrong, said in (
        (of(smoothing="m2"), "m2 does not run on Qwen3"),
        (of(smoothing="m4", qkv="W8A8_DYNAMIC"), "the shift is in a bias that vLLM-Ascend skips"),
    ):
        found = evaluate(question, wrong, bench)
        assert found.failure.stage == "check"
        assert said in found.failure.message


def test_a_report_and_a_capacity_of_it_are_refused_with_what_tells_instead(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path)
    with pytest.raises(ConfigError, match=f"no report is made.*workbench show {file}"):
        report(file, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(ConfigError, match=f"engines of others.*workbench show {file}") as said:
        plan_capacity(file, qps=5.0)
    assert "Add service" not in str(said.value)


def test_a_wrong_question_is_refused_before_any_work(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"objectives": ["kl", "size_mb"]}, "is measured by perplexity"),
        ({"objectives": ["latency_p50_ms", "perplexity"]}, "latency_p50_ms is not measured of a language model"),
        ({"constraints": {"accuracy_loss_pp": 1}}, "Write accuracy_loss, in percent of the perplexity"),
        ({"service": {"concurrency": 4}}, "service"),
        ({"calibration": {"samples": 9}}, "9 is more than the 4 samples"),
        ({"validation": {"samples": 400}}, "400 is more than the"),
        ({"model": "prompts.jsonl"}, "is no folder"),
        ({"load": {"batch": 0}}, "batch"),
    ]
    for number, (changes, said) in enumerate(wrong):
        with pytest.raises(ConfigError, match=said):
            read_experiment(write_language_workspace(tmp_path / str(number), **changes))


def test_wrong_texts_are_refused_by_name(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path)
    (tmp_path / "short.txt").write_text("pump")
    files = "files: {calibration: prompts.jsonl, validation: text.txt}\n"
    for manifest, said in (
        (f"task: tensors\n{files}", "'tensors' is not allowed"),
        ("task: language\nfiles: {calibration: none.jsonl, validation: text.txt}\n", "does not exist"),
        ("task: language\nfiles: {calibration: text.txt, validation: text.txt}\n", "neither .jsonl nor .json"),
        (f"task: language\nwindow: 16\n{files.replace('text.txt', 'short.txt')}", "nothing is predicted"),
        (f"task: language\nwindow: 999\n{files}", "longer than the model's context"),
        (f"task: language\nwindow: 16\nstride: 17\n{files}", "stride of 17"),
        (f"task: language\nwindow: 16\nbins: [8]\n{files}", "bins"),
    ):
        (tmp_path / "texts.yaml").write_text(f"version: 1\n{manifest}")
        with pytest.raises(ConfigError, match=said):
            read_experiment(file)


def test_a_folder_is_refused_by_targets_of_onnx_files(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path)
    (tmp_path / "space.yaml").write_text(
        "version: 1\ntarget: onnxruntime\nparameters: {quantization.scheme: {choices: [none, dynamic]}, "
        "quantization.weight_granularity: {when: {quantization.scheme: [dynamic]}, choices: [channel]}}\n"
    )
    body = json.loads(file.read_text())
    del body["load"]
    file.write_text(json.dumps({**body, "objectives": ["latency_p50_ms", "accuracy"], "constraints": {}}))
    with pytest.raises(ConfigError, match="is a folder, and onnxruntime takes ONNX files"):
        read_experiment(file)


def test_without_its_packages_the_target_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.targets.ascend_llm import description

    monkeypatch.setattr(description, "find_spec", lambda name: None)  # as on a machine without torch
    with pytest.raises(ToolchainError, match=r"pip install .*\[llm\]'"):
        read_experiment(write_language_workspace(tmp_path))


def test_divergence_may_be_what_is_measured(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path, objectives=["kl", "size_mb"], constraints={"accuracy_loss": 2.0})
    manifest = tmp_path / "texts.yaml"
    manifest.write_text(manifest.read_text() + "measure: kl\n")
    question, bench = language_bench(file)
    found = evaluate(question, of(), bench, gates=False)
    accuracy = found.measurement.accuracy
    assert (accuracy.primary, accuracy.unit) == ("kl", "nats")
    assert accuracy.comparison.drop_pp.value == pytest.approx(accuracy.values["kl"])
    outcomes = load_outcomes(bench.journal.outcomes(found.candidate.id, "validation"))
    assert list(outcomes.names) == ["kl", "nll", "top1_agreement"]
    assert np.isfinite(outcomes.numerators).all()


def outcomes(ratio: float, *, noise: float = 0.0, seed: int = 0) -> MeasuredOutcomes:
    """64 windows as hard as those of ratio 1, and log(ratio) nats a token worse but for noise."""
    means = 3 + np.random.default_rng(7).normal(size=64) + math.log(ratio)
    means += noise * np.random.default_rng(seed).normal(size=64)
    counted = np.full((64, 1), 511.0)
    told = {"names": ["nll"], "units": ["nats"], "higher": [False], "bounds": [(np.nan, np.nan)], "reduce": ["ratio"]}
    columns = {name: np.array(values) for name, values in told.items()}
    return MeasuredOutcomes(**columns, numerators=means[:, None] * counted, denominators=counted)


def test_a_recipe_far_above_the_limit_is_certain_after_the_first_look_and_one_at_it_hardly_ever() -> None:
    assert (looks(64), looks(20), looks(12)) == ((8, 16, 32), (10,), ())
    reference, worse = outcomes(1), outcomes(1.5, noise=0.01)
    first = take(reference, 8), take(worse, 8)
    assert certainly_worse(*first, math.log(1.1), 3) == pytest.approx(math.log(1.5), abs=0.1)
    assert certainly_worse(*first, math.log(1.6), 3) is None
    assert certainly_worse(take(reference, 7), take(worse, 7), math.log(1.1), 3) is None
    stopped = 0
    for seed in range(300):
        at_the_limit = outcomes(1.1, noise=0.05, seed=seed)
        parts = [(take(reference, n), take(at_the_limit, n)) for n in looks(64)]
        stopped += any(certainly_worse(*part, math.log(1.1), 3) is not None for part in parts)
    assert stopped <= 3  # 0.3 are meant; more than 3 has a probability below 0.0003
