"""The documented flow of calls gives AMCT's own files again (amct.md §1.1, §11; tests/data/amct)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.data import AMCT, AMCT_CASES
from tests.quantization.deploy_models import golden_batches, golden_float_model, plain_run
from workbench.cann_emulator import amct_onnx as amct
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.amct.record_file import parse_record, record_text
from workbench.quantization.integers.interpreter import Interpreter
from workbench.quantization.lowering.normalize import normalized


def calibrated(case: str, to: Path) -> tuple[Path, list[dict[str, npt.NDArray[Any]]]]:
    """Run the vendor's procedure in a folder; the model is `float.onnx` there."""
    folder = AMCT / case
    proto = golden_float_model(folder)
    model = to / "float.onnx"
    onnx.save(proto, model)
    feeds: list[dict[str, npt.NDArray[Any]]] = [{proto.graph.input[0].name: b} for b in golden_batches(folder)]
    cfg = folder / "quant.cfg"
    defination = {"config_defination": str(cfg)} if cfg.is_file() else {"batch_num": 3}
    amct.create_quant_config(str(to / "config.json"), str(model), **defination)
    config, record, modified = str(to / "config.json"), str(to / "record.txt"), str(to / "modified.onnx")
    if "dmq_balancer" in (to / "config.json").read_text():
        amct.quantize_preprocess(config, record, str(model), str(to / "mod0.onnx"))
        onnxruntime.InferenceSession(str(to / "mod0.onnx"), amct.AMCT_SO).run(None, feeds[0])
    amct.quantize_model(config, str(model), modified, record)
    session = onnxruntime.InferenceSession(modified, amct.AMCT_SO)
    for each in feeds:
        session.run(None, each)
    amct.save_model(modified, record, str(to / "results/net"))
    return to, feeds


def normal_record(text: str, model: Path) -> str:
    """A record file in the layout of protobuf's printer, whatever fields the operators put where."""
    read = read_model(model)
    layers = quantizable_layers(normalized(load_graph(read)))
    return record_text(parse_record(text, layers=layers, model_sha256=read.sha256))


def numbers(text: str) -> list[float]:
    return [float(line.split(": ")[1]) for line in text.splitlines() if ("scale" in line or "factor" in line)]


def without_numbers(text: str) -> list[str]:
    return [line.split(": ")[0] if ("scale" in line or "factor" in line) else line for line in text.splitlines()]


@pytest.mark.parametrize("case", AMCT_CASES)
def test_the_files_are_amcts_and_both_models_are_the_same_bit_for_bit(case: str, tmp_path: Path) -> None:
    """Configuration and record, the deploy model's integers, the fake-quant model's nodes; amct.md §0 fact 7."""
    folder = AMCT / case

    to, feeds = calibrated(case, tmp_path)

    assert (to / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    ours, theirs = (
        normal_record((to / "record.txt").read_text(), to / "float.onnx"),
        (folder / "record.txt").read_text(),
    )
    assert without_numbers(ours) == without_numbers(theirs)
    assert numbers(ours) == pytest.approx(numbers(theirs), rel=2e-6)
    for name, kinds in (("deploy", ("AscendQuant", "AscendDequant")), ("fake_quant", ("Round", "Clip", "Mul"))):
        ours = onnx.load(to / f"results/net_{name}_model.onnx")
        theirs = onnx.load(folder / f"q_{name}_model.onnx")
        assert names_of(ours, kinds) == names_of(theirs, kinds)
        found, expected = weights_of(ours), weights_of(theirs)
        assert found.keys() == expected.keys()
        for layer, values in expected.items():
            assert found[layer].dtype == values.dtype
            np.testing.assert_array_equal(found[layer], values)
    interpreter = Interpreter(onnx.load(to / "results/net_deploy_model.onnx"))

    for each in feeds:
        expected = interpreter.run(each)
        for name, values in plain_run(to / "results/net_fake_quant_model.onnx", each).items():
            np.testing.assert_array_equal(values, expected[name])


def names_of(model: onnx.ModelProto, op_types: tuple[str, ...]) -> set[tuple[str, str]]:
    return {(node.op_type, node.name) for node in model.graph.node if node.op_type in op_types}


def weights_of(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """Layer → its weight, for layers that have one."""
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul", "Conv", "ConvTranspose")]
    assert all(helper.get_attribute_value(a) == 0 for node in layers for a in node.attribute if a.name == "transB")
    return {node.name: known[node.input[1]] for node in layers}
