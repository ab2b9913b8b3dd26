import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inputs.dataset.manifests import ARRAYS, TEXT
from workbench.inputs.dataset import Dataset, read_interface
from workbench.values.errors import ConfigError
from workbench.values.interface import AxisUse, InputUse


def test_inputs_axes_and_state_are_read_without_any_data(tmp_path: Path) -> None:
    path = tmp_path / "only.yaml"
    path.write_text(
        "version: 1\nfiles: {calibration: nowhere.npz}\n"
        "inputs: {sr: {constant: 16000}, h: {axes: [2, batch, 128], initial: 0.5}, x: {axes: [batch, frames]}}\n"
        "axes: {frames: {bins: [50, 100], pad: -1}}\nstate: {hN: h}\n"
    )
    found = read_interface(path)
    assert found.inputs == (
        InputUse(name="sr", constant=16000),
        InputUse(name="h", axes=(2, "batch", 128), initial=0.5),
        InputUse(name="x", axes=("batch", "frames")),
    )
    assert found.axes == (AxisUse(name="frames", bins=(50, 100), pad=-1.0),)
    assert found.state == (("hN", "h"),)


def test_a_wrong_key_is_named(tmp_path: Path) -> None:
    for text, said in (
        ("inputs: {x: {}}", "expected a role (ids, mask, types) or a mapping"),
        ("inputs: {x: {constant: [[1], [1, 2]]}}", "rows have different lengths"),
        ("inputs: {x: {constant: .nan}}", "expected finite numbers"),
        ("inputs: {x: {constant: [a]}}", "expected finite numbers"),
        ("inputs: {x: {constant: 1, axes: [batch]}}", "means nothing beside axes"),
        ("inputs: {x: {initial: 1}}", "'x' is no state"),
        ("inputs: {x: {axes: [batch, batch]}}", "stands twice"),
        ("inputs: {x: {axes: [-1, 3]}}", "expected a list of names and sizes"),
        ("inputs: {x: {axis: [1]}}", "unknown key"),
        ("axes: {batch: {bins: [1]}}", "candidates choose how many"),
        ("axes: {t: {bins: [4, 2]}}", "not ascending"),
        ("state: {a: s, b: s}", "fed by two outputs"),
    ):
        path = tmp_path / "only.yaml"
        path.write_text(f"{ARRAYS}{text}\n")

        with pytest.raises(ConfigError, match=re.escape(said)):
            read_interface(path)


def test_roles_are_for_texts_axes_are_not_and_what_is_declared_changes_the_identity(
    read: Callable[..., Dataset],
) -> None:
    plain = read(ARRAYS)
    declared = read(ARRAYS + "inputs: {sr: {constant: 16000}}\n")

    assert plain.interface.inputs == ()
    assert declared.identity != plain.identity
    assert declared.digest("validation") != plain.digest("validation")
    with pytest.raises(ConfigError, match="'ids' is a role"):
        read(ARRAYS + "inputs: {x: ids}\n")
    with pytest.raises(ConfigError, match="means nothing for texts"):
        read(TEXT + "axes: {sequence: {bins: [4]}}\n")
