"""Models of others are opened once in a process with limits; what asks for too much is refused, and quickly."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto as T
from onnx import helper

from tests.small_graphs import write_graph
from workbench.graph import door as model_door
from workbench.graph.door import MEMORY_VARIABLE, SECONDS_VARIABLE, limits_of, open_foreign
from workbench.values.errors import ConfigError


@pytest.fixture(autouse=True)
def _nothing_passed_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(model_door, "_passed", set())


def write(path: Path, nodes: Sequence[onnx.NodeProto], **constants: Any) -> Path:
    return write_graph(path, nodes, {"x": [1]}, {"y": None}, **constants)


def endless() -> onnx.NodeProto:
    inputs = [("i", T.INT64), ("more", T.BOOL), ("value", T.FLOAT)]
    body = helper.make_graph(
        [helper.make_node("Identity", ["more"], ["again"]), helper.make_node("Relu", ["value"], ["next"])],
        "body",
        [helper.make_tensor_value_info(name, kind, []) for name, kind in inputs],
        [helper.make_tensor_value_info("again", T.BOOL, []), helper.make_tensor_value_info("next", T.FLOAT, None)],
    )
    return helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)


def test_a_sound_model_passes_and_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])])

    model = open_foreign(path)

    def refuse(*_: object) -> None:
        raise AssertionError("it was opened again")

    monkeypatch.setattr(model_door, "guarded", refuse)
    assert open_foreign(path) == model
    monkeypatch.setattr(model_door, "_passed", set())  # another process, which finds the mark
    assert open_foreign(path) == model


def test_a_graph_whose_constants_grow_without_end_is_ended_by_its_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "100")  # so that memory alone can end it, however slow the machine is
    nodes = [helper.make_node("Concat", [f"t{i}" if i else "one"] * 2, [f"t{i + 1}"], axis=0) for i in range(50)]
    path = write(tmp_path / "double.onnx", [*nodes, helper.make_node("Add", ["t50", "x"], ["y"])], one=np.ones(1, "f"))

    with pytest.raises(ConfigError, match=rf"double\.onnx: opening it .* needs more than 4\.5 GiB.*{MEMORY_VARIABLE}"):
        open_foreign(path)
    assert open_foreign(write(tmp_path / "good.onnx", [helper.make_node("Relu", ["x"], ["y"])])).opset == 17


def test_a_loop_without_end_is_ended_by_its_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_door, "_BASE_S", 0.5)  # seconds; so the test has not to wait for two of them
    path = write(tmp_path / "loop.onnx", [endless()], yes=True)

    with pytest.raises(ConfigError, match=rf"loop\.onnx: opening it .* did not end within 1 s.*{SECONDS_VARIABLE}"):
        open_foreign(path)


def test_a_model_is_opened_though_the_program_that_opens_has_ended_meanwhile(tmp_path: Path) -> None:
    open_foreign(write(tmp_path / "first.onnx", [helper.make_node("Relu", ["x"], ["y"])]))
    openers = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # another test's, that has ended
            if "workbench.graph.opener" in process.cmdline():
                openers.append(process)
    assert openers
    for opener in openers:
        opener.kill()

    assert open_foreign(write(tmp_path / "second.onnx", [helper.make_node("Sqrt", ["x"], ["y"])])).opset == 17


def test_limits_follow_the_model_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_foreign(write(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])]))
    size = model.size_bytes

    assert limits_of(size).memory_bytes < 1 << 30
    assert limits_of(2 << 30).memory_bytes > 8 << 30
    assert limits_of(2 << 30).cpu_s > 100
    monkeypatch.setenv(MEMORY_VARIABLE, "64")
    monkeypatch.setenv(SECONDS_VARIABLE, "1000")
    assert (limits_of(size).memory_bytes, limits_of(size).cpu_s) == (64 << 30, 1000)
    monkeypatch.setenv(MEMORY_VARIABLE, "plenty")
    with pytest.raises(ConfigError, match=f"{MEMORY_VARIABLE}: 'plenty' is not a positive number"):
        limits_of(size)


def test_the_process_that_opens_ends_with_the_command(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])])
    code = (
        "import sys; from pathlib import Path; from workbench.graph import door as model_door\n"
        "model_door.open_foreign(Path(sys.argv[1])); print(model_door._OPENER._process.pid)"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(model_door.__file__).parents[2])},
    )

    assert done.stderr == ""
    assert not Path(f"/proc/{done.stdout.strip()}").exists()
