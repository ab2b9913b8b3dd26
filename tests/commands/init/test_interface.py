"""What `init` tells of data and model by looking at them: splits, states, axes, lengths and limits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.commands.init.making import refused, write_text_model
from workbench.commands.init.data import assign_splits
from workbench.commands.init.interface import declare, declared_axes, state_pairs
from workbench.commands.init.manifest import LENGTHS, choose_lengths
from workbench.commands.init.model import choose_targets, longest_text
from workbench.graph.read import load_graph, read_model
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec


def made(inputs: dict[str, tuple[int | str | None, ...]], outputs: dict[str, tuple[int | str | None, ...]]) -> Model:
    def specs(shapes: dict[str, tuple[int | str | None, ...]]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(name=n, dtype="int64" if n == "sr" else "float32", shape=shape) for n, shape in shapes.items()
        )

    return Model(
        path=Path("m.onnx"), sha256="0" * 64, size_bytes=1, opset=17, inputs=specs(inputs), outputs=specs(outputs)
    )


def test_a_state_is_known_by_its_name_and_its_shape() -> None:
    for fed, carried in (
        *(("h", "hn"), ("state", "stateN"), ("state_in", "state_out"), ("past.0.key", "present.0.key"), ("c0", "cn")),
    ):
        inputs: dict[str, tuple[int | str | None, ...]] = {"x": ("batch", 8), fed: (2, "batch", 16)}
        found = made(inputs, {"y": ("batch", 1), carried: (2, "batch", 16)})
        assert list(state_pairs(found)) == [(carried, fed)]
        assert list(state_pairs(made(inputs, {carried: (2, "batch", 17)}))) == []


def test_what_nothing_feeds_is_built_in_or_refused_with_the_option_to_write() -> None:
    speech = made({"input": (None, None), "state": (2, None, 128), "sr": ()}, {"out": (None, 1), "stateN": ()})
    data = {"input": (40, 10, 576)}

    with pytest.raises(ConfigError, match=r"nothing feeds the input 'sr' .*--constant sr=VALUE"):
        declare(speech, data, {})
    found, _ = declare(speech, data, {"sr": "16000"})

    assert found.state == (("stateN", "state"),)
    assert {use.name: (use.constant, use.axes) for use in found.inputs} == {
        "sr": (16000, ()),
        "state": (None, (2, "batch", 128)),
    }


def test_a_single_number_fills_an_input_of_a_fixed_shape() -> None:
    voice = made({"x": ("batch", 8), "h0": (2, 1, 3), "free": (None, 2)}, {"y": ("batch", 1)})
    data = {"x": (40, 8), "free": (40, 2)}
    with pytest.raises(ConfigError, match="--constant h0=VALUE, which a single number fills"):
        declare(voice, data, {})
    for text, constant in (("0.5", [[[0.5] * 3]] * 2), ("[[[1,2,3]],[[4,5,6]]]", [[[1, 2, 3]], [[4, 5, 6]]])):
        assert declare(voice, data, {"h0": text})[0].inputs[0].constant == constant


def test_the_shape_of_one_sample_tells_which_axis_counts_them() -> None:
    cases: tuple[tuple[tuple[int | str | None, ...], tuple[int, ...], tuple[str | int, ...] | None], ...] = (
        (("batch", 3, 8, 8), (40, 3, 8, 8), None),
        ((-1, 3, None, None), (40, 3, 8, 8), None),
        ((8, None, 16), (40, 8, 16), (8, "batch", 16)),
        ((16,), (40, 16), (16,)),
        (("batch", 16), (40, 32), None),
        (("time", 1, 80), (40, 50, 80), ("time", "batch", 80)),
        ((1, 3, "height", 8), (40, 1, 3, 8, 8), (1, 3, "height", 8)),
    )
    for shape, array, axes in cases:
        found = declared_axes([TensorSpec(name="x", dtype="float32", shape=shape)], {"x": array}, set())
        assert {name: chosen for name, (chosen, _) in found.items()} == ({} if axes is None else {"x": axes})


def test_targets_of_a_host_share_an_experiment_and_a_device_has_its_own() -> None:
    assert choose_targets(["onnxruntime,openvino", "ascend910b3"])[0] == (
        ("onnxruntime", "openvino"),
        ("ascend910b3",),
    )
    assert choose_targets([])[0] == (("onnxruntime",),)
    assert ("ascend910b3",) in choose_targets(["all"])[0]
    for written, says in ((["onxruntime"], "Did you mean 'onnxruntime'"), (["all", "openvino"], "nothing to add")):
        with pytest.raises(ConfigError, match=says):
            choose_targets(written)


def test_files_are_told_apart_by_name_then_by_order_or_refused(folder: Path, tmp_path: Path) -> None:
    def split(names: str) -> dict[str, Path]:
        for name in names.split():
            (tmp_path / name).touch()
        return dict(assign_splits([tmp_path / name for name in names.split()]))

    for names, expected in (
        ("train.csv dev.csv", "train.csv dev.csv"),
        ("dev.csv train.csv", "train.csv dev.csv"),
        ("test.csv train.csv", "train.csv test.csv"),
        ("test.csv valid.csv calib.csv", "calib.csv valid.csv test.csv"),
        ("holdout.csv calibration.csv test.csv", "calibration.csv test.csv holdout.csv"),
        ("c.csv a.csv b.csv", "c.csv a.csv b.csv"),
        ("rows.csv calib.csv", "calib.csv rows.csv"),
        ("test.csv dev.csv rows.csv", "rows.csv dev.csv test.csv"),
        ("test.csv rows.csv train.csv", "train.csv rows.csv test.csv"),
        ("my-Dev1.csv latest.csv", "latest.csv my-Dev1.csv"),
    ):
        found = split(names)
        assert [path.name for path in found.values()] == expected.split()
        assert tuple(found) == ("calibration", "validation", "holdout")[: len(found)]
    for names, says in (
        ("dev.csv", "dev.csv alone cannot both calibrate and judge"),
        ("a.csv a.csv", "stands twice"),
        ("train.csv train_2.csv", "both look like the calibration file"),
        ("a.csv b.csv c.csv d.csv", "4 files"),
        ("a.txt b.csv", ".txt is of no known kind"),
        ("train.csv holdout.csv", "no validation file among train.csv, holdout.csv"),
        ("dev.csv test.csv", "no calibration file among dev.csv, test.csv"),
    ):
        with pytest.raises(ConfigError, match=re.escape(says)):
            split(names)
    np.savez(folder / "valid.npz", x=np.zeros((4, 4), np.float32))
    assert "cannot be mixed" in refused(folder, "train.csv", "valid.npz")


def test_the_limit_is_read_off_the_position_table(tmp_path: Path) -> None:
    def limit(file: Path) -> int | None:
        return longest_text(load_graph(read_model(file)))

    limits = [limit(write_text_model(tmp_path / "m.onnx", positions=positions)) for positions in (512, 514, 40)]
    assert limits == [512, 512, 32]
    tiny.write_model(tmp_path / "tiny.onnx")
    assert limit(tmp_path / "tiny.onnx") is None


@given(
    lengths=st.lists(st.integers(1, 9000), min_size=1, max_size=40),
    longest=st.none() | st.integers(1, 128).map(lambda n: n * 16),
)
def test_bins_hold_every_text_the_model_can_take_and_none_is_empty(lengths: list[int], longest: int | None) -> None:
    max_length, bins = choose_lengths(lengths, longest=longest, fixed=None)
    limit = longest or 512

    assert list(bins) == sorted(set(bins))
    assert bins[-1] == max_length <= limit
    assert all(min(length, limit) <= max_length for length in lengths)
    for lower, upper in zip((0, *bins), bins, strict=False):
        assert any(lower < min(length, limit) <= upper for length in lengths)
        assert upper in LENGTHS or upper == limit
