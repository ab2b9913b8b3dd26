"""Which outputs a bundle keeps, and from a swept candidate of a language model to its bundle and to the gate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.llm_workspace import language_bench, write_language_workspace
from tests.targets.ascend_llm.checkpoints import checkpoint
from tests.targets.ascend_llm.folders import TEXTS
from workbench.bundle.opened import read_bundle
from workbench.bundle.prompts import golden_prompts, prompt_faults
from workbench.bundle.verify import verify_bundle
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.sweep import confirm, run_sweep
from workbench.shipping.handover import MARGIN, bundle_contents, comparable, hand_over, make_golden_prompts
from workbench.shipping.promotion import Limits, evaluate
from workbench.targets.ascend_llm.target import prompted
from workbench.values.errors import BundleError, ConfigError
from workbench.values.interface import OutputUse
from workbench.values.results import Evaluation


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Bench, Evaluation]:
    """Baseline and two presets, of which one is confirmed on held-out text."""
    file = write_language_workspace(tmp_path_factory.mktemp("llm"), budget={"trials": 3})
    question, bench = language_bench(file)
    (bench.journal.root / "sweep.json").write_text("{}")
    run_sweep(question, bench)
    chosen = next(e for e in bench.journal.evaluations().values() if e.candidate.id != question.baseline.id)
    confirm(question, bench, [bench.journal.evaluations()[question.baseline.id], chosen])
    return question, bench, chosen


@pytest.fixture(scope="module")
def bundle(swept: tuple[Experiment, Bench, Evaluation], tmp_path_factory: pytest.TempPathFactory) -> Path:
    question, bench, chosen = swept
    contents = bundle_contents(question, chosen.candidate, bench, bench.journal)
    return hand_over(tmp_path_factory.mktemp("handed") / "bundle", contents)


def test_a_swept_candidate_is_handed_over_with_its_figures_recipe_and_outcomes(
    swept: tuple[Experiment, Bench, Evaluation], bundle: Path
) -> None:
    question, _, chosen = swept
    manifest = read_bundle(bundle).manifest
    assert manifest.candidate == chosen.candidate
    assert [evaluation.split for evaluation in manifest.evaluations] == ["validation", "holdout"]
    assert manifest.outcomes is not None
    assert set(manifest.datasets) == {"calibration", "validation", "holdout"}
    assert manifest.model.sha256 == question.model.sha256
    assert (bundle / "model" / "recipe.yaml").read_text().startswith("apiversion: modelslim_v0")
    readme = (bundle / "README.md").read_text()
    assert "decode of one token, ms, modelled" in readme
    assert "windows scored" in readme
    assert "drift of the machine" not in readme


def test_its_prompts_are_beginnings_of_windows_and_replay(bundle: Path) -> None:
    report = verify_bundle(bundle)
    assert report.prompts is not None
    assert report.prompts.share == 0.0
    kept = golden_prompts(read_bundle(bundle))
    assert len(kept.prompts) == 8
    assert {len(prompt.ids) for prompt in kept.prompts} == {16}


def test_the_gate_holds_losses_against_the_limit_and_says_that_nothing_was_loaded(bundle: Path) -> None:
    verdict = evaluate(bundle, bundle, limits=Limits(max_loss=1000.0))
    outcomes = {check.name: check.outcome for check in verdict.checks}
    assert outcomes["accuracy"] == "passed"
    assert outcomes["measured"] == "not checked"
    assert outcomes["throughput under load"] == "not checked"
    assert any("--protocol openai" in check.reason for check in verdict.checks)
    first = evaluate(bundle, None, limits=Limits(max_loss=1000.0))
    assert next(check for check in first.checks if check.name == "accuracy against float").outcome == "passed"


def test_the_float_model_is_no_candidate_for_a_bundle(swept: tuple[Experiment, Bench, Evaluation]) -> None:
    question, bench, _ = swept
    with pytest.raises(ConfigError, match="is the float model as it was"):
        bundle_contents(question, question.baseline, bench, bench.journal)


def test_another_number_of_threads_than_swept_with_is_said_with_the_way_to_set_it(
    swept: tuple[Experiment, Bench, Evaluation], tmp_path: Path
) -> None:
    question, bench, chosen = swept
    contents = bundle_contents(question, chosen.candidate, bench, bench.journal)
    made = contents.artifact.toolchain
    others = tuple("7 threads" if fact.endswith(" threads") else fact for fact in made.features)
    measured = [replace(e, toolchain=replace(made, features=others)) for e in contents.evaluations]
    with pytest.raises(BundleError, match="export with OMP_NUM_THREADS=7, as it was swept, or sweep again"):
        hand_over(tmp_path / "bundle", replace(contents, evaluations=tuple(measured)))


def test_texts_and_what_is_ignored_and_infinite_are_not_kept() -> None:
    outputs = {
        "label": np.array(["a", "b"], dtype=object),
        "masked": np.array([-np.inf, 0.0]),
        "beside": np.array([1.0, 2.0]),
        "found": np.zeros((1, 0), dtype=np.int64),
    }
    uses = [OutputUse(name=name, meaning="ignored") for name in ("label", "masked", "beside")]

    assert comparable([outputs], uses) == ("beside", "found")
    assert comparable([outputs], ()) == ("masked", "beside", "found")  # refused later: it is compared


# --- which texts become golden prompts ------------------------------------------------------------------------------


def test_prompts_are_texts_that_can_be_shown_cut_to_the_room_that_the_context_leaves_beside_an_answer() -> None:
    model = prompted(checkpoint())
    made = make_golden_prompts(model, ["pump", "the \x1b[2J pump", "  ", *TEXTS[:1]], answer=2)
    assert [prompt.text for prompt in made.prompts] == TEXTS[:1]
    assert not list(prompt_faults(made))
    with pytest.raises(ConfigError, match="no text can be a golden prompt"):
        make_golden_prompts(model, ["pump"])
    made = make_golden_prompts(prompted(checkpoint()), [" ".join(["pump"] * 200)], tokens=100, answer=4)
    assert len(made.prompts[0].ids) == 64 - 4
    assert len(made.prompts[0].answer) == made.tokens == 4
    with pytest.raises(ConfigError, match="leaves no room"):
        make_golden_prompts(prompted(checkpoint()), TEXTS, answer=64)


def test_one_pass_over_prompt_and_answer_sees_the_same_tokens_as_one_after_another() -> None:
    model = prompted(checkpoint(dtype="float32"))
    made = make_golden_prompts(model, TEXTS)
    assert made.largest_measured <= made.tolerance.absolute / MARGIN
    assert made.largest_measured < 1e-2 * max(step.logits[0] for prompt in made.prompts for step in prompt.steps)
