"""The float model against compiled files on the emulated device: planted faults are found, and the advice mends."""

from __future__ import annotations

import html
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.ascend_workspace import write_ascend_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.study.planted import BATCH, IMAGE_FEEDS, TEXT_FEEDS, Array, compile_om, image_model, int8_form, text_model
from workbench.api.study import compare
from workbench.graph.read import read_model
from workbench.report.layers import comparison_html
from workbench.study.compared import Comparison
from workbench.targets.ascend.interface import interface_of, write_interface
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ConfigError, MeasureError


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    found = emulated_environment(tmp_path_factory.mktemp("cann"), OMP_NUM_THREADS="1")
    with switched_on(found):
        yield found


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A float model, its compiled form with a fault, and what the advice has to say."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    int8: str = ""  # the layer whose scale is wrecked
    weights: bool = False  # it is that of its weights
    operator: str
    tensor: str
    lines: tuple[str, ...]

    def compiled(self, folder: Path, environment: Mapping[str, str], advice: Mapping[str, tuple[str, ...]]) -> Path:
        kept = advice.get("compile.keep_dtype", ())
        lowered = self.model
        if self.int8:
            skipped = [line.partition(": ")[2].strip('"') for line in advice.get("skip_layers", ())]
            lowered = int8_form(self.model, self.feeds, bad=self.int8, weights=self.weights, skipped=skipped)
        return compile_om(lowered, folder, environment, keep=kept)

    def against(self, om: Path, folder: Path, **more: Any) -> Comparison:
        folder.mkdir(exist_ok=True)
        onnx.save(self.model, folder / "float.onnx")
        np.savez(folder / "data.npz", **dict(self.feeds))
        rows = len(next(iter(self.feeds.values())))
        more = {"data": folder / "data.npz", "to": folder / "cmp", "batch": rows, **more}
        return compare(f"onnx:{folder / 'float.onnx'}", f"om:{om}", **more)


LAYER_NORM = ("mean", "centre", "square", "variance", "stable", "deviation", "normal", "gained", "norm")
PLANTED = {
    "overflow in a text model": Planted(
        model=text_model(overflowing=True),
        feeds=TEXT_FEEDS,
        operator="grow",
        tensor="residual_y",
        lines=("grow", *LAYER_NORM),
    ),
    "overflow in a vision model": Planted(
        model=image_model(overflowing=True),
        feeds=IMAGE_FEEDS,
        operator="relu2",
        tensor="r2",
        lines=("conv2", "relu2", "pool", "shrink"),
    ),
    "a wrecked scale in a text model": Planted(
        model=text_model(), feeds=TEXT_FEEDS, int8="up", operator="down.quant", tensor="gelu_y", lines=("up",)
    ),
    "a wrecked scale in a vision model": Planted(
        model=image_model(), feeds=IMAGE_FEEDS, int8="conv2", operator="conv2.quant", tensor="r1", lines=("conv2",)
    ),
    "wrecked weights in a vision model": Planted(
        model=image_model(),
        feeds=IMAGE_FEEDS,
        int8="conv2",
        weights=True,
        operator="relu2",
        tensor="r2",
        lines=("conv2",),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_with_its_operator_and_the_printed_lines_mend_it(
    tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    planted = PLANTED[name]

    found = planted.against(planted.compiled(tmp_path / "om", environment, {}), tmp_path / "bad")

    assert not found.passed
    assert found.device.emulated
    bad = found.device.first_bad
    assert (bad.operator, bad.tensor) == (planted.operator, planted.tensor)
    assert bad.cause == ("integers" if planted.int8 else "range")
    assert bad.relative_error > 0.5
    (mend,) = bad.mends
    assert [line.partition(": ")[2].strip('"') or line for line in mend.lines] == list(planted.lines)
    arrays = {Path(file).name: np.load(file) for file in bad.files}
    assert {file.split(".")[0].rstrip("0123456789") for file in arrays} == {"input", "output", "float"}
    assert any(file.startswith("output0") for file in arrays)
    text = html.unescape(comparison_html(found))
    assert f"{planted.operator} (" in text
    assert all(line in text for line in mend.lines)
    assert "The values are an emulator's, not a device's." in text
    json.dumps(found.to_json())

    mended = planted.compiled(tmp_path / "mended", environment, {mend.setting: mend.lines})
    again = planted.against(mended, tmp_path / "good")

    assert again.passed
    assert again.device.first_bad is None
    assert all(row.within_limits for row in again.rows)


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> tuple[Path, Path]:
    """(folder with float.onnx and data.npz, dump of its compiled form)."""
    folder = tmp_path_factory.mktemp("overflowing")
    planted = PLANTED["overflow in a text model"]
    planted.against(planted.compiled(folder / "om", environment, {}), folder / "run")
    return folder / "run", folder / "run" / "cmp"


def again(folder: Path, dump: Path, to: Path, **more: Any) -> Comparison:
    return compare(f"onnx:{folder / 'float.onnx'}", f"om:{dump}", to=to, **more)


def test_a_dump_is_compared_without_the_device_that_made_it(overflowing: tuple[Path, Path], tmp_path: Path) -> None:
    folder, dump = overflowing

    found = again(folder, dump, tmp_path)

    assert found.data == "what the device was fed"
    assert found.device.first_bad.operator == "grow"
    # what vendors write beside results is enough to name operators where nobody kept the compiler's graph
    (alone,) = dump.glob("dump/*")
    shutil.copytree(alone, tmp_path / "bare" / alone.name)
    bare = again(folder, tmp_path / "bare", tmp_path / "bare-to")
    assert (bare.device.first_bad.operator, bare.device.first_bad.tensor) == ("grow", "residual_y")


def test_files_are_named_in_several_ways(tmp_path: Path, environment: dict[str, str]) -> None:
    planted = Planted(model=image_model(), feeds=IMAGE_FEEDS, operator="", tensor="", lines=())
    om = planted.compiled(tmp_path / "om", environment, {})

    assert planted.against(om, tmp_path / "file").passed
    onnx.save(planted.model, tmp_path / "m.onnx")
    write_interface(interface_of(read_model(tmp_path / "m.onnx")), om.parent)
    assert planted.against(om.parent, tmp_path / "folder").passed
    with pytest.raises(ConfigError, match="a dump is in this folder already"):
        planted.against(om, tmp_path / "folder")
    for wrong, words in (("nowhere", "there is nothing of this name"), ("bare", "neither a compiled file")):
        (tmp_path / "bare").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match=words):
            planted.against(tmp_path / wrong, tmp_path / f"to-{wrong}")


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(overflowing: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    folder, dump = overflowing
    shutil.copytree(dump, tmp_path / "dump")
    return folder, tmp_path / "dump"


def operator_file(dump: Path, start: str) -> Path:
    (found,) = dump.rglob(f"{start}.*.*")
    return found


def test_a_truncated_dump_and_one_of_another_model_are_refused(copied: tuple[Path, Path], tmp_path: Path) -> None:
    folder, dump = copied
    onnx.save(image_model(), tmp_path / "float.onnx")
    with pytest.raises(ConfigError, match=r"the dump is of another model: its input 'ids' is none of"):
        again(tmp_path, dump, tmp_path / "to")
    file = operator_file(dump, "Mul.grow")
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(MeasureError, match=r"Mul\.grow.*truncated"):
        again(folder, dump, tmp_path / "to")


def test_tensors_that_are_missing_are_not_compared_and_inputs_are_asked_for(
    copied: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, dump = copied
    operator_file(dump, "SoftmaxV2.softmax").unlink()

    found = again(folder, dump, tmp_path / "to")

    assert "softmax_y" not in {row.tensor for row in found.rows}
    assert found.device.first_bad is not None
    operator_file(dump, "Data.ids").unlink()
    with pytest.raises(ConfigError, match="input 'ids' is not in the dump"):
        again(folder, dump, tmp_path / "to2")


def test_names_with_odd_characters_are_found_again(tmp_path: Path, environment: dict[str, str]) -> None:
    proto = image_model(overflowing=True)
    renamed = {node.name: f"/вес {index}/a.b:c\\d" for index, node in enumerate(proto.graph.node)}
    for node in proto.graph.node:
        node.name = renamed[node.name]
    planted = Planted(model=proto, feeds=IMAGE_FEEDS, operator="", tensor="", lines=())

    found = planted.against(planted.compiled(tmp_path / "om", environment, {}), tmp_path / "run")

    bad = found.device.first_bad
    assert bad.operator == renamed["relu2"]
    assert bad.nodes == (renamed["conv2"], renamed["relu2"])
    assert bad.mends[0].lines == tuple(renamed[name] for name in ("conv2", "relu2", "pool", "shrink"))


def test_rows_are_filled_up_as_the_device_was_fed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Three texts in a file for four: the fourth row is compared too, as what filled it up was fed to both."""
    planted = Planted(model=text_model(), feeds=TEXT_FEEDS, operator="", tensor="", lines=())
    om = planted.compiled(tmp_path / "om", environment, {})
    free = text_model()
    for value in (*free.graph.input, *free.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    loose = Planted(model=free, feeds={"ids": TEXT_FEEDS["ids"][:3]}, operator="", tensor="", lines=())

    found = loose.against(om, tmp_path / "run")

    assert found.passed
    assert next(row for row in found.rows if row.is_output).elements == BATCH * 5


def test_a_candidate_is_compared_with_the_float_model_of_its_experiment(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    file = write_ascend_workspace(tmp_path / "ws")
    chosen = Candidate(
        target="ascend910b3", precision=Precision(mode="force_fp16"), compile=AscendCompile(sequence_bins=(8,))
    )
    (tmp_path / "chosen.json").write_text(json.dumps(chosen.to_json()))

    found = compare("float", f"om:{tmp_path / 'chosen.json'}", experiment=file, batch=1, to=tmp_path / "cmp")

    assert found.passed
    assert found.batches == 1
    # the texts have 7 tokens, the file is compiled for 8, and so many are compared
    assert next(row for row in found.rows if row.tensor == "embed_y").elements == 8 * 16
    assert found.device.emulated
