"""`workbench compare` and `workbench sensitivity` as a user runs them; of language models, groups are ranked."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.commands.running import run
from tests.llm_workspace import write_language_workspace
from tests.quantization.llm import tiny_models
from tests.study.test_comparison import changed
from tests.tiny import workbench, write_workspace
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.run import group_errors
from workbench.targets.ascend_llm.description import GROUPS
from workbench.values.errors import ConfigError


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def studied(experiment: Path) -> str:
    done = workbench("sensitivity", experiment, "--unit", "layer")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compare_names_the_damaged_layer_and_fails(experiment: Path, tmp_path: Path) -> None:
    model = experiment.parent.parent / "data" / "model.onnx"

    other = changed(model, "w1", 0.5, tmp_path / "b.onnx")
    done = workbench("compare", model, other, "--html", tmp_path / "page.html")

    assert done.returncode == 1, done.stderr
    assert "The error first jumps at a1 (Add bias1)" in done.stdout
    assert "NOT within the limits" in done.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The error first jumps at a1" in page
    assert 'src="http' not in page


def test_compare_takes_candidates_of_an_experiment_without_a_sweep(
    experiment: Path, studied: str, tmp_path: Path
) -> None:
    file = experiment.parent.parent / ".workbench" / "sensitivity" / "tiny" / "candidate.json"

    done = workbench("compare", "baseline", file, "--experiment", experiment, "--json", "--max-abs", 9, "--mae", 9)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passed"]
    assert not found["equal"]
    assert [row["tensor"] for row in found["rows"]] == ["a0", "r0", "a1", "r1", "logits"]
    assert found["data"] == "tiny, validation split"


def test_sensitivity_ranks_measures_and_says_what_to_run(experiment: Path, studied: str) -> None:
    folder = experiment.parent.parent / ".workbench" / "sensitivity" / "tiny"

    assert "most sensitive first (by sqnr)" in studied
    for layer in ("dense0", "dense1", "dense2"):
        assert layer in studied
    assert "speed-up over float" in studied
    assert f"workbench evaluate {experiment} --candidate {folder / 'candidate.json'}" in studied
    assert (folder / "amct.cfg").exists()
    assert "the table above is measured" in (folder / "sensitivity.html").read_text(encoding="utf-8")
    line = next(line for line in studied.splitlines() if "workbench evaluate" in line)
    done = workbench(*line.split("workbench ")[1].split())
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


def test_what_a_user_gets_wrong_is_named(experiment: Path) -> None:
    for asked, message in (
        ("compare absent.onnx absent.onnx", "no such file"),
        ("compare tensorrt:a.onnx a.onnx", "'tensorrt' is not an engine"),
        (f"sensitivity {experiment} --metric l2", "'l2' is none of"),
        (f"sensitivity {experiment} --candidate baseline", "only static INT8 keeps layers in float"),
    ):
        result = run(*asked.split())
        assert isinstance(result.exception, ConfigError)  # `main` turns it into one line and exit code 2 (test_cli.py)
        assert message in str(result.exception)


def test_a_group_that_reads_one_huge_value_ranks_first(tmp_path: Path) -> None:
    folder = tiny_models.write_model(tmp_path / "m", "llama", "float32")
    tensors = load_file(folder / "model.safetensors")
    # one channel of the gated product is a thousand times the others: a scale for all of them loses the others
    tensors["model.layers.1.mlp.up_proj.weight"][3] *= 1000
    tensors["model.layers.1.mlp.down_proj.weight"][:, 3] /= 1000
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    errors = group_errors(open_model(folder), tiny_models.samples(), GROUPS)
    assert len(errors) == 2 * len(GROUPS)
    assert max(errors, key=lambda name: errors[name]) == "model.layers.1.down"
    assert all(error >= 0 for error in errors.values())


def test_the_command_shows_the_ranking_and_gives_it_as_json(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path)
    told, shown = (run("sensitivity", file, *more) for more in (["--json"], []))
    groups = json.loads(told.stdout)
    assert [g["error"] for g in groups] == sorted((g["error"] for g in groups), reverse=True)
    assert f"   1  {groups[0]['name']}" in shown.stdout
    assert "by kind: " in shown.stdout
    assert "ranked alone" in str(run("sensitivity", file, "--unit", "layer").exception)
