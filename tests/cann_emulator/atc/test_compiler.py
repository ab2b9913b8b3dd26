"""From an ONNX file to an OM that runs (atc.md §3, §5.6, §6)."""

import platform
import stat
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests import model_zoo
from tests.cann_emulator.atc.compiling import (
    BATCH,
    LENGTH,
    STATIC,
    codes_of,
    compiled,
    difference,
    encoder,
    options,
    quantized_encoder,
)
from tests.model_zoo import tokens, write_bert
from tests.targets.encoder import ids
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_compile
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import largest_gear, load_om
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form


def test_a_compiled_encoder_computes_what_the_onnx_file_does_up_to_half_precision(tmp_path: Path) -> None:
    path = encoder(tmp_path)
    model = compiled(path, input_shape=STATIC)
    assert [(t.name, t.dtype, t.shape) for t in model.inputs] == [("ids", "int64", (BATCH, LENGTH))]
    assert [(t.name, t.dtype, t.shape) for t in model.outputs] == [("logits", "float32", (BATCH, 5))]
    assert model.output_names == ("classifier:0:logits",)  # pyacl.md §1: node:index:onnx_output_name
    assert 0 < difference(model, path, ids(BATCH, LENGTH)) < 0.02


@pytest.mark.parametrize(
    "flags",
    [
        {"input_shape": "ids:-1,16", "dynamic_batch_size": "1,2"},
        {"input_shape": "ids:-1,-1", "dynamic_dims": "1,16;2,16"},
        {"input_shape": "ids:1~4,16"},
    ],
)
def test_a_quantized_model_takes_no_dynamic_shapes(flags: dict[str, str], tmp_path: Path) -> None:
    """atc.md, fact 4 (atctool_0040, General Restrictions)."""
    assert codes_of(quantized_encoder(tmp_path), **flags) == ["E10055"]


def test_gears_hold_kernels_for_every_shape_in_the_order_given(tmp_path: Path) -> None:
    path = encoder(tmp_path)
    model = compiled(path, input_shape="ids:-1,-1", dynamic_dims="2,32;1,16")
    assert model.gear_kind == "dynamic_dims"
    assert [gear.dims for gear in model.gears] == [(2, 32), (1, 16)]
    assert model.inputs[0].shape == (-1, -1)
    assert model.outputs[0].shape == (-1, 5)
    assert [gear.outputs[0].shape for gear in model.gears] == [(2, 5), (1, 5)]
    assert largest_gear(model) is model.gears[0]
    for index, (batch, length) in enumerate(((2, 32), (1, 16))):
        assert difference(model, path, ids(batch, length), gear=index) < 0.02
    assert (tmp_path / "encoder.om").exists()


def test_a_range_model_gets_os_and_cpu_before_the_first_om_of_its_path(tmp_path: Path) -> None:
    """atc.md §6."""
    path = encoder(tmp_path)
    model = compiled(path, input_shape="ids:1~4,-1")
    suffix = f"_{platform.system().lower()}_{platform.machine()}"
    assert model.gear_kind == "range"
    assert model.outputs[0].shape == (-1, 5)
    assert (tmp_path / f"encoder{suffix}.om").exists()
    assert difference(model, path, ids(3, 9)) < 0.02
    (tmp_path / "runs.om").mkdir()
    (tmp_path / f"runs{suffix}.om").mkdir()
    run_compile(options(path, input_shape="ids:1~4,16", output=str(tmp_path / "runs.om" / "a")), Console())
    assert (tmp_path / f"runs{suffix}.om" / "a.om").exists()


def test_an_om_is_its_owners_alone_and_an_existing_file_is_truncated_in_place(tmp_path: Path) -> None:
    """atc.md §6: mode 0600, truncated, not replaced."""
    path, om = encoder(tmp_path), tmp_path / "encoder.om"
    compiled(path, input_shape=STATIC)
    assert stat.S_IMODE(om.stat().st_mode) == 0o600
    om.chmod(0o644)
    om.write_bytes(b"x" * 10_000_000)
    before = om.stat().st_ino
    run_compile(options(path, input_shape=STATIC), Console())
    assert om.stat().st_ino == before
    assert stat.S_IMODE(om.stat().st_mode) == 0o644
    assert load_om(om).name == "encoder"


def test_an_output_that_cannot_be_opened_is_found_at_the_end(tmp_path: Path) -> None:
    path = encoder(tmp_path)
    (tmp_path / "busy.om").mkdir()
    with pytest.raises(AtcFailure) as caught:
        run_compile(options(path, input_shape=STATIC, output=str(tmp_path / "busy")), Console())
    record, tail = caught.value.records
    assert (record.code, tail.code) == ("E10001", "E10042")
    assert record.arguments["parameter"] == "file parameter"
    assert (tmp_path / "fusion_result.json").exists()


def test_float_inputs_can_be_fed_in_half_precision(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model_zoo.write_gemms(path)
    model = compiled(path, input_shape="x:2,12", input_fp16_nodes="x", output_type="FP16")
    assert model.inputs[0].dtype == model.outputs[0].dtype == "float16"
    assert not [k for k in model.gears[0].kernels if k.op_type == "Cast"]
    feeds = {"x": model_zoo.rows(2, 0)["x"].astype(np.float16)}
    assert Executable(model, threads=1).run(feeds)["y"].dtype == np.float16
    assert codes_of(path, input_shape="x:2,12", input_fp16_nodes="z") == ["E10016"]
    assert codes_of(path, input_shape="x:2,12", input_fp16_nodes="first") == ["E10017"]


def test_the_rounding_in_front_of_a_layer_norm_is_no_part_of_it(tmp_path: Path) -> None:
    write_bert(tmp_path / "float.onnx", exporter="torchscript", opset=17, attention="sdpa")
    onnx.save(atc_form(load_graph(read_model(tmp_path / "float.onnx"))), tmp_path / "model.onnx")
    feeds = tokens(2, 0)
    shapes = ";".join(f"{name}:{','.join(map(str, array.shape))}" for name, array in feeds.items())

    om = compiled(tmp_path / "model.onnx", input_shape=shapes)
    got = Executable(om).run(feeds)

    expected = ort.InferenceSession(str(tmp_path / "float.onnx")).run(None, feeds)
    assert {"LayerNorm", "AddLayerNorm"} <= {kernel.op_type for kernel in om.gears[0].kernels}
    for float_output, output in zip(expected, got.values(), strict=True):
        assert 0 < np.abs(float_output - output).max() < 0.02
