"""Noise in the float model's outputs must move the metric, or no candidate could fail it."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tiny import EXPERIMENT, write_workspace
from workbench.evaluation.carried import open_reference
from workbench.evaluation.metric_check import check_metric, look_at_decisions
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics.score import Outputs
from workbench.values.errors import ConfigError


def changed(experiment: Experiment, change: Callable[[Outputs], Outputs] = lambda outputs: outputs) -> Any:
    """The float model as a session, whose outputs are changed on the way."""
    session = open_reference(experiment.model)
    return SimpleNamespace(run=lambda feeds: change(session.run(feeds)))


def asked(root: Path, outputs: str = "") -> Experiment:
    file = write_workspace(root, experiment=EXPERIMENT)
    for split in ("calibration", "validation", "holdout"):
        with np.load(root / "data" / f"{split}.npz") as stored:
            kept = stored["x"]
        np.savez(root / "data" / f"{split}.npz", x=kept)
    (root / "data" / "manifest.yaml").write_text(
        "version: 1\ntask: tensors\n"
        "files: {calibration: calibration.npz, validation: validation.npz, holdout: holdout.npz}\n" + outputs,
        encoding="utf-8",
    )
    return read_experiment(file)


def checked(experiment: Experiment) -> str:
    return check_metric(experiment, changed(experiment), "validation")


def test_a_metric_that_moves_says_by_how_little_noise_and_one_that_cannot_is_refused_before_the_sweep(
    tmp_path: Path,
) -> None:
    said = checked(asked(tmp_path / "moves"))
    assert said.startswith("top1_agreement moves from 1 to 0.")
    assert "of the spread of 'logits'" in said

    for meaning, rule in (
        ("probabilities, threshold: 1000.0", r"outputs: decision_agreement stays at 1 on 24 samples whatever is done"),
        ("probabilities, threshold: 1000.0", "another meaning or option .threshold, score"),
        ("boxes, class_column: 4, limits: {recall: 0.9}", "cannot be scored: .*; boxes are"),
        (
            "embedding, k: 500, limits: {neighbour_recall: 0.9}",
            "neighbour_recall stays at 1",
        ),  # nobody has 500 before it
    ):
        with pytest.raises(ConfigError, match=rule):
            checked(asked(tmp_path / rule[:20], f"outputs: {{logits: {{meaning: {meaning}}}}}\n"))


@pytest.mark.parametrize(("shape", "what"), [((), "is one number of a whole call"), ((7,), r"has the shape \[7\]")])
def test_what_samples_share_is_refused_unless_it_is_left_out(tmp_path: Path, shape: tuple[int, ...], what: str) -> None:
    def mean(outputs: Outputs) -> Outputs:
        return {**outputs, "mean of all": np.broadcast_to(outputs["logits"].mean(), shape)}

    def said(outputs: str) -> str:
        experiment = asked(tmp_path / outputs[:30].replace("/", ""), f"outputs: {{logits: logits, {outputs}}}\n")
        return check_metric(experiment, changed(experiment, mean), "validation")

    declared = r"'x' \[samples, 1, \d+\] in the data, .* inputs: {x: {axes: \[1, \d+\]}}"
    with pytest.raises(ConfigError, match=rf"'mean of all' {what}.*{declared}.*'mean of all'=ignored"):
        said("mean of all: values")
    assert said("mean of all: ignored").startswith("top1_agreement moves")


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ("logits: logits", "always class 0.*top1_agreement says nothing .*primary: cosine"),
        ("logits: {meaning: probabilities, threshold: 2000}", "never above its threshold.*primary: mean_dp"),
        ("logits: {meaning: logits, primary: cosine}", None),
        ("logits: {meaning: mask, threshold: 2000}", "finds nothing in the first .*'logits'.* iou says nothing"),
    ],
)
def test_decisions_that_are_all_alike_are_said_to_show_nothing_of_others(
    tmp_path: Path, outputs: str, said: str | None
) -> None:
    experiment = asked(tmp_path, f"outputs: {{{outputs}}}\n")

    def sure(outputs: Outputs) -> Outputs:
        return {name: array + 1e3 * (np.arange(array.shape[-1]) == 0) for name, array in outputs.items()}

    found = look_at_decisions(experiment, changed(experiment, sure), "validation")
    assert re.search(said, found) if said else not found
    assert bool(look_at_decisions(experiment, changed(experiment), "validation")) == ("2000" in outputs)


def with_metric(root: Path, code: str, metric: str = "metric.py:f", labels: object = None) -> Experiment:
    asked(root)
    (root / "data/metric.py").write_text(f"import numpy as np\n{code}", encoding="utf-8")
    if labels is not None:
        for split in ("calibration", "validation", "holdout"):
            with np.load(root / "data" / f"{split}.npz") as stored:
                x = stored["x"]
            np.savez(root / "data" / f"{split}.npz", x=x, labels=np.resize(np.asarray(labels), len(x)))
    manifest = root / "data" / "manifest.yaml"
    manifest.write_text(manifest.read_text("utf-8") + f"metric: {metric}\n", encoding="utf-8")
    file = root / "experiments/tiny.yaml"
    if "bounds" in metric:
        file.write_text(file.read_text("utf-8").replace("accuracy_loss_pp", "accuracy_loss"), encoding="utf-8")
    return read_experiment(file)


def test_a_metric_in_which_the_float_model_is_not_perfect_beside_itself_is_refused(tmp_path: Path) -> None:
    constant = "def f(outputs, reference):\n    return np.full(len(outputs['logits']), 0.4)"
    distance = "def f(outputs, reference):\n    return np.abs(outputs['logits'] - 1).sum(axis=1)"
    bounded = "{function: metric.py:f, bounds: [0, null], higher_is_better: false}"
    for name, code, metric, found in (
        ("a", constant, "metric.py:f", "f of .* is 0.4"),
        ("b", distance, bounded, "where equal answers have 0"),
    ):
        with pytest.raises(ConfigError, match=f"{found}.*something else than agreement") as refused:
            checked(with_metric(tmp_path / name, code, metric))
        assert refused.value.key == "metric"
