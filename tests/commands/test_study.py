"""`workbench compare` and `workbench sensitivity` as a user runs them."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.commands.running import run
from tests.tiny import workbench, write_workspace
from workbench.values.errors import ConfigError


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def studied(experiment: Path) -> str:
    done = workbench("sensitivity", experiment, "--unit", "layer")
    assert done.returncode == 0, done.stderr
    return done.stdout


def damaged(model: Path, to: Path) -> Path:
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(0.5), "w1"))
    onnx.save(proto, to)
    return to


def test_compare_names_the_damaged_layer_and_fails(experiment: Path, tmp_path: Path) -> None:
    model = experiment.parent.parent / "data" / "model.onnx"

    done = workbench("compare", model, damaged(model, tmp_path / "b.onnx"), "--html", tmp_path / "page.html")

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
