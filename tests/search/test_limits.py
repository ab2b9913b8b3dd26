"""What samples can say of a limit: said before the sweep, and with each rejection."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.search.sweeping import silent
from tests.tiny import EXPERIMENT, write_workspace
from workbench.evaluation.bench import open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.inputs.dataset import read_manifest
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics import output_constraints
from workbench.search.limits import rejection, samples_to_be_certain, samples_to_see, too_fine
from workbench.search.plan import make_plan
from workbench.values.interface import Interface, OutputUse
from workbench.values.objectives import Constraint
from workbench.values.significance import compare


def test_a_limit_finer_than_one_sample_is_warned_about_with_the_samples_it_needs(
    tmp_path: Path, warm_store: Path
) -> None:
    text = EXPERIMENT.replace("accuracy_drop_pp: 2.0", "accuracy_drop_pp: 0.01")
    fine = read_experiment(write_workspace(tmp_path, experiment=text))
    bench = open_bench(fine, Journal(root=tmp_path), Store(warm_store), silent)

    first, *_ = make_plan(fine, bench, probe=lambda: 1.0).warnings

    size = fine.dataset.size("validation")
    assert f"finer than one sample of validation: of {size} samples one is {100 / size:.3g} pp. 10000 samples" in first


def test_a_limit_of_a_sample_or_more_and_no_limit_are_not_warned_about(question: Experiment) -> None:
    assert too_fine(question) == []
    assert too_fine(replace(question, constraints=())) == []
    assert too_fine(replace(question, constraints=(Constraint(metric="accuracy_drop_pp", limit=0.0),))) == []


def test_entities_are_counted_where_they_weigh(question: Experiment, tmp_path: Path) -> None:
    tags = np.array([[1, 2, 0, 1], [0, 0, 0, 0], [1, 0, -100, -100]])
    np.savez(tmp_path / "x.npz", input_ids=np.ones((3, 4), np.int64), labels=tags)
    (tmp_path / "tags.json").write_text('["O", "B-A", "I-A"]')
    files = "files: {calibration: x.npz, validation: x.npz, holdout: x.npz}"
    (tmp_path / "ner.yaml").write_text(f"version: 1\ntask: ner\nlabels: tags.json\n{files}\n")
    ner = replace(question, dataset=read_manifest(tmp_path / "ner.yaml"))

    found = too_fine(replace(ner, constraints=(Constraint(metric="accuracy_drop_pp", limit=33.0),)))

    assert len(found) == 2
    assert "finer than one entity of validation: of 3 entities one is 33.3 pp" in found[0]
    assert too_fine(replace(ner, constraints=(Constraint(metric="accuracy_drop_pp", limit=34.0),))) == []


def test_limits_of_outputs_are_held_against_one_sample(question: Experiment) -> None:
    for limit, warned in ((0.999, True), (0.5, False), (1.0, False)):
        use = OutputUse(name="logits", meaning="logits", limits=(("top1_agreement", limit), ("cosine", 0.9999)))
        data = replace(question.dataset, task="tensors", interface=Interface(outputs=(use,)))

        found = too_fine(replace(question, dataset=data, constraints=output_constraints(data, question.model)))

        size = data.size("validation")
        said = f">= 0.999 is finer than one sample of validation: of {size} samples one is {1 / size:.3g}"
        assert any(said in one for one in found) == warned
        assert len(found) == (2 if warned else 0)


def test_a_sample_of_several_decisions_weighs_less_than_its_share(question: Experiment) -> None:
    """Scores of which each is decided by itself have the shape of one vector of classes."""
    found: dict[float | None, list[str]] = {}
    for threshold in (0.5, None):
        use = OutputUse(
            name="logits", meaning="probabilities", options=(("threshold", threshold),) if threshold else ()
        )
        data = replace(question.dataset, task="tensors", interface=Interface(outputs=(use,)))
        batch = next(data.batches("validation", 4, stop=4))
        shares = np.full((len(batch), 3), 1 / 3, np.float32)
        asked = replace(question, dataset=data, constraints=(Constraint(metric="accuracy_drop_pp", limit=0.01),))
        found[threshold] = too_fine(asked, [(batch, {"logits": shares})])

    assert "finer than one sample of validation" in found[None][0]
    assert found[0.5] == []


@pytest.mark.parametrize("limit_pp", [0.1, 0.5, 2.0])
def test_the_numbers_of_samples_are_those_of_the_intervals(limit_pp: float) -> None:
    def upper(samples: int) -> float:
        agreeing = np.ones(samples, dtype=bool)
        return compare(agreeing, agreeing).drop_pp.high

    enough = samples_to_be_certain(limit_pp)
    assert upper(enough + 1) <= limit_pp * 1.001
    assert upper(enough - 2) > limit_pp * 0.999
    assert 100 / samples_to_see(limit_pp) <= limit_pp


def test_a_rejection_shows_its_interval_and_whether_it_is_certain() -> None:
    right = np.ones(1000, dtype=bool)
    few, many = np.arange(1000) >= 10, np.arange(1000) >= 100

    unsure = rejection("accuracy_drop_pp", compare(right, few), 0.9, right, few)
    sure = rejection("accuracy_drop_pp", compare(right, many), 0.5, right, many)

    assert unsure.startswith("accuracy_drop_pp 1.00 pp [0.5")
    assert unsure.endswith("limit 0.9: not certain: 10 of 1000 samples worse, 0 better")
    assert sure.endswith("], limit 0.5: certain")
