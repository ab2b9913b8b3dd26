"""convert_qat_model (amct.md §6.7): QDQ in, deploy and fake-quant out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.quantization.deploy_models import min_max_record, plain_run
from tests.quantization.golden import cnn, data
from tests.targets.encoder import ids, model_of, tiny_encoder
from workbench.cann_emulator import amct_onnx as amct
from workbench.graph.read import load_graph, read_model
from workbench.quantization.integers.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.qdq import lower_static


def integers(model: onnx.ModelProto) -> dict[str, Any]:
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type in ("MatMul", "Conv", "Gemm")]
    return {node.name: found[node.input[1]] for node in layers if node.input[1] in found}


def test_a_qdq_model_of_ours_becomes_the_deploy_model_of_the_same_record(folder: Path) -> None:
    """The second, official route from ONNX Runtime's form to ATC's."""
    onnx.save(tiny_encoder(), "float.onnx")
    proto = load_graph(read_model(folder / "float.onnx"))
    feeds = ids(3, 6)
    record = min_max_record(proto, feeds)
    layers = tuple(layer for layer in record.layers if layer.second is None and layer.op_type == "MatMul")
    record = replace(record, layers=layers)
    onnx.save(lower_static(proto, record), "qdq.onnx")

    amct.convert_qat_model("qdq.onnx", "out/net", "record.txt")

    # in the QDQ form every bias stands on the right, where AMCT moves it into the integer product
    expected, given = lower_deploy(proto, record, merge_bias=True), onnx.load("out/net_deploy_model.onnx")
    theirs, ours = integers(given), integers(expected)
    for layer in layers:
        np.testing.assert_array_equal(theirs[layer.layer], ours[layer.layer])
    values = Interpreter(given).run(feeds)["logits"]
    np.testing.assert_allclose(values, Interpreter(expected).run(feeds)["logits"], atol=2e-6)
    np.testing.assert_array_equal(plain_run(folder / "out/net_fake_quant_model.onnx", feeds)["logits"], values)
    assert Path("record.txt").read_text().count("record {") == len(layers)


def conv_qdq(**changes: Any) -> onnx.ModelProto:
    """x → Q → DQ → Conv (int8 weight per channel, int32 bias) → y."""
    settings = {"activation_zero": np.int8(-5), "weight_zero": 0, "other_scale": 0.05, "axis": 0} | changes
    proto = cnn()
    weight = numpy_helper.to_array(proto.graph.initializer[0])
    scales = np.abs(weight).max(axis=(1, 2, 3)) / 127
    stored = np.rint(weight / scales.reshape(-1, 1, 1, 1)).astype(np.int8)
    zero = np.full(4, settings["weight_zero"], np.int8)
    weights: dict[str, Any] = {
        "xs": np.float32(0.05),
        "xs2": np.float32(settings["other_scale"]),
        "xz": settings["activation_zero"],
        "w": stored,
        "ws": scales.astype(np.float32),
        "wz": zero,
        "b": np.array([5, -7, 11, 0], np.int32),
        "bs": (scales * 0.05).astype(np.float32),
        "bz": np.zeros(4, np.int32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="q"),
        helper.make_node("DequantizeLinear", ["xq", "xs2", "xz"], ["xd"], name="dq"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dqw", axis=settings["axis"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], name="dqb", axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["y"], name="conv", pads=[1] * 4),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 6, 6])
    return model_of(nodes, {name: np.asarray(value) for name, value in weights.items()}, [x], [y])


def test_a_convolution_keeps_its_integers_and_its_bias(folder: Path) -> None:
    proto = conv_qdq()
    onnx.save(proto, "qdq.onnx")
    feeds = {"x": data((2, 3, 6, 6), 0)}

    amct.convert_qat_model("qdq.onnx", "net")

    deploy = onnx.load("net_deploy_model.onnx")
    stored = {t.name: numpy_helper.to_array(t) for t in deploy.graph.initializer}
    conv = next(node for node in deploy.graph.node if node.name == "conv")
    np.testing.assert_array_equal(stored[conv.input[2]], [5, -7, 11, 0])
    np.testing.assert_array_equal(stored[conv.input[1]], numpy_helper.to_array(proto.graph.initializer[3]))
    np.testing.assert_allclose(Interpreter(deploy).run(feeds)["y"], plain_run(proto, feeds)["y"], atol=1e-5)


def test_unsigned_activations_are_moved_into_the_signed_domain(folder: Path) -> None:
    onnx.save(conv_qdq(activation_zero=np.uint8(123)), "qdq.onnx")

    amct.convert_qat_model("qdq.onnx", "net")

    quant = next(node for node in onnx.load("net_deploy_model.onnx").graph.node if node.op_type == "AscendQuant")
    assert {a.name: helper.get_attribute_value(a) for a in quant.attribute}["offset"] == -5.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"other_scale": 0.06}, "must have the same scale and zero point"),
        ({"weight_zero": 3}, "the weight's zero point must be 0"),
    ],
)
def test_what_cannot_be_converted_is_named(changes: dict[str, Any], message: str, folder: Path) -> None:
    onnx.save(conv_qdq(**changes), "qdq.onnx")

    with pytest.raises(RuntimeError, match=message):
        amct.convert_qat_model("qdq.onnx", "net")


def test_pairs_before_other_operators_are_removed_with_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = conv_qdq()
    proto.graph.node[-1].output[0] = "c"
    scale, zero = "xs", "xz"
    proto.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", ["c", scale, zero], ["cq"], name="q2"),
            helper.make_node("DequantizeLinear", ["cq", scale, zero], ["cd"], name="dq2"),
            helper.make_node("Relu", ["cd"], ["y"], name="relu"),
        ]
    )
    onnx.save(proto, "qdq.onnx")

    amct.convert_qat_model("qdq.onnx", "net")

    assert (
        "WARNING - [AMCT]:1 Q/DQ pairs are before no layer that is converted, and removed: cd"
        in capsys.readouterr().out
    )


def test_a_float_model_is_refused(folder: Path) -> None:
    onnx.save(cnn(), "float.onnx")

    with pytest.raises(RuntimeError, match="has no layer between QuantizeLinear and DequantizeLinear"):
        amct.convert_qat_model("float.onnx", "net")


def test_inputs_of_an_add_are_quantized_and_brought_back(folder: Path) -> None:
    """amct.md §6.7: AscendQuant and AscendAntiQuant."""
    weights = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(4))}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
        helper.make_node("Add", ["d", "x"], ["y"], name="add"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    proto = model_of(nodes, dict(weights), [x], [y])
    onnx.save(proto, "qdq.onnx")
    feeds = {"x": np.array([0.26, -1.04, 99.0, 3.3], np.float32)}

    amct.convert_qat_model("qdq.onnx", "net")

    kinds = [node.op_type for node in onnx.load("net_deploy_model.onnx").graph.node]
    assert kinds == ["AscendQuant", "AscendAntiQuant", "Add"]
    expected = plain_run(proto, feeds)["y"]
    np.testing.assert_allclose(Interpreter(onnx.load("net_deploy_model.onnx")).run(feeds)["y"], expected, rtol=1e-6)
    np.testing.assert_allclose(plain_run(folder / "net_fake_quant_model.onnx", feeds)["y"], expected, rtol=1e-6)
