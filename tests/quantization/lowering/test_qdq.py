from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.data import AMCT, AMCT_CASES
from tests.quantization.deploy_models import golden_batches, golden_float_model, golden_record, plain_run
from workbench.graph.read import load_graph
from workbench.quantization.lowering.qdq import lower_dynamic, lower_static
from workbench.quantization.record import ActivationScale, LayerRecord, WeightScale
from workbench.quantization.weights import scales_along
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, Array, ids, model_of, record_for, record_with, run, value
from workbench.values.errors import LoweringError
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]


def scale_of(tensor: str, scale: float = 0.05, zero_point: int = 3) -> ActivationScale:
    low, high = (-128 - zero_point) * scale, (127 - zero_point) * scale
    return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


def layer_of(name: str, op_type: str = "MatMul", x: str = "x", weight: WeightScale | None = None) -> LayerRecord:
    weight = weight or WeightScale(scales=(0.01,), axis=None)
    return LayerRecord(layer=name, op_type=op_type, activation=scale_of(x), weight=weight)


def one_matmul(w: Array, opset: int = 17) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")
    inputs, outputs = [value("x", ["n", w.shape[0]])], [value("y", ["n", w.shape[1]])]
    return model_of([node], {"w": w}, inputs, outputs, opset)


def producers(proto: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in proto.graph.node for name in node.output}


def test_a_lowered_encoder_shares_quantizations_and_keeps_residuals_in_float(encoder: Model) -> None:
    lowered = lower_static(load_graph(encoder), record_for(encoder.path, ids(2, 5), per_channel=True, products=True))

    made, types = producers(lowered), {tensor.name: tensor.data_type for tensor in lowered.graph.initializer}
    read = Counter(node.input[0] for node in lowered.graph.node if node.op_type == "QuantizeLinear")
    assert set(read.values()) == {1}
    assert len({made[n.input[0]].input[0] for n in lowered.graph.node if n.name in ("query", "key", "value")}) == 1
    for node in lowered.graph.node:
        if node.op_type == "Add":
            assert not any(n in made and made[n].op_type == "DequantizeLinear" for n in node.input), node.name
        if node.op_type == "MatMul":
            kinds = [types[made[name].input[2]] for name in node.input]
            assert kinds == [TensorProto.UINT8, TensorProto.INT8], node.name
    # a Gemm becomes a MatMul with its weight transposed
    (node,) = [n for n in lowered.graph.node if n.name == "classifier"]
    assert node.op_type == "MatMul"
    assert not [n for n in lowered.graph.node if n.op_type == "Gemm"]
    assert [a.i for a in made[node.input[1]].attribute if a.name == "axis"] == [1]


def test_a_gemm_with_factors_or_a_transposed_input_is_refused() -> None:
    for attributes in ({"transA": 1}, {"alpha": -1.0}, {"beta": 2.0}):
        node = helper.make_node("Gemm", ["x", "w"], ["y"], name="g", **attributes)
        proto = model_of([node], {"w": np.ones((4, 4), np.float32)}, [value("x", [4, 4])], [value("y", [4, 4])])
        with pytest.raises(LoweringError, match="only a Gemm with alpha = beta = 1"):
            lower_static(proto, record_with(layer_of("g", "Gemm")))


def one_convolution(op_type: str, w: Array, b: Array | None, groups: int = 1, **attributes: Any) -> onnx.ModelProto:
    """`x` [n, Cin, h, w] → `y`; the layer is called "conv"."""
    inputs = ["x", "w"] + ["b"] * (b is not None)
    node = helper.make_node(op_type, inputs, ["y"], name="conv", group=groups, **attributes)
    weights = {"w": w} | ({} if b is None else {"b": b})
    channels = w.shape[0] if op_type == "ConvTranspose" else w.shape[1] * groups
    return model_of([node], weights, [value("x", ["n", channels, "h", "w"])], [value("y", ["n", "c", "p", "q"])])


def rounded(x: Floats, scale: float, zero_point: int) -> Floats:
    """The integers of an activation less its zero point, as float32 values."""
    integers: Floats = np.clip(np.rint(x / np.float32(scale)) + zero_point, -128, 127) - np.float32(zero_point)
    return integers


def channel_scales(w: Floats, axis: int) -> tuple[float, ...]:
    largest = np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis))
    return tuple((largest / np.float32(127)).tolist())


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("groups", [1, 2], ids=["full", "grouped"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_a_convolution_without_output_scale_is_amcts_integer_arithmetic_to_the_last_bit(
    per_channel: bool, groups: int, bias: bool
) -> None:
    random = np.random.default_rng(11)
    w = random.normal(size=(6, 4 // groups, 3, 3)).astype(np.float32)
    b = random.normal(size=6).astype(np.float32) if bias else None
    settings = {"pads": [1, 0, 2, 1], "strides": [2, 1]}
    proto = one_convolution("Conv", w, b, groups, **settings)
    scales = channel_scales(w, 0) if per_channel else (0.02,)
    weight = WeightScale(scales=scales, axis=0 if per_channel else None)
    x = (random.normal(size=(2, 4, 7, 6)) * 3).astype(np.float32)

    lowered = lower_static(proto, record_with(layer_of("conv", "Conv", weight=weight)))
    (got,) = run(lowered, {"x": x})

    along = np.asarray(scales, np.float32).reshape(-1, 1, 1, 1)
    integers = np.clip(np.rint(w / along), -128, 127).astype(np.float32)
    # float32 adds up to 2^24 exactly, more than 18 products of 255 and 127 can give
    (sums,) = run(one_convolution("Conv", integers, None, groups, **settings), {"x": rounded(x, 0.05, 3)})
    factors = (np.float32(0.05) * along).reshape(-1)
    total = sums.astype(np.int64)
    if b is not None:
        total += np.rint(b / factors).astype(np.int64).reshape(-1, 1, 1)
    onnx.checker.check_model(lowered, full_check=True)
    assert "ConvInteger" in {node.op_type for node in lowered.graph.node}
    assert np.array_equal(total.astype(np.float32) * factors.reshape(-1, 1, 1), got)


@pytest.mark.parametrize(
    ("op_type", "shape", "groups", "scales"),
    [
        ("Conv", (4, 1, 3, 3), 4, 4),
        ("ConvTranspose", (4, 3, 2, 2), 1, 3),
        ("ConvTranspose", (4, 3, 2, 2), 2, 6),
        ("ConvTranspose", (4, 3, 2, 2), 2, 1),
    ],
    ids=["depthwise", "transposed", "transposed, grouped", "transposed, one scale"],
)
def test_a_convolution_without_a_fast_integer_kernel_keeps_the_integers_values(
    op_type: str, shape: tuple[int, ...], groups: int, scales: int
) -> None:
    random = np.random.default_rng(12)
    w, b = random.normal(size=shape).astype(np.float32), random.normal(size=max(scales, 3)).astype(np.float32)
    b = b if scales > 1 else random.normal(size=6).astype(np.float32)
    proto = one_convolution(op_type, w, b, groups)
    steps = random.uniform(0.02, 0.04, scales).astype(np.float32)
    axis = None if scales == 1 else 0 if op_type == "Conv" else 1
    weight = WeightScale(scales=tuple(steps.tolist()), axis=axis)
    x = random.normal(size=(2, 4, 5, 5)).astype(np.float32)

    lowered = lower_static(proto, record_with(layer_of("conv", op_type, weight=weight)))

    along = scales_along(weight, shape, groups if op_type == "ConvTranspose" else 1)
    integers = np.clip(np.rint(w / along), -128, 127)
    fake = one_convolution(op_type, integers * along, b, groups)
    (expected,) = run(fake, {"x": rounded(x, 0.05, 3) * np.float32(0.05)})
    (got,) = run(lowered, {"x": x})
    onnx.checker.check_model(lowered, full_check=True)
    assert np.allclose(expected, got, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", AMCT_CASES)
def test_amcts_own_records_give_what_its_simulation_gives(case: str) -> None:
    """Up to float32 rounding: 3.2e-7 of the largest output is the worst of these cases."""
    folder = AMCT / case
    proto = golden_float_model(folder)
    lowered = lower_static(proto, golden_record(folder, proto))

    for batch in golden_batches(folder):
        (expected,) = plain_run(folder / "q_fake_quant_model.onnx", {amct_input(folder): batch}).values()
        (got,) = run(lowered, {lowered.graph.input[0].name: batch})
        assert np.abs(expected - got).max() <= 1e-6 * np.abs(expected).max()


def amct_input(folder: Path) -> str:
    name: str = onnx.load(folder / "q_fake_quant_model.onnx").graph.input[0].name
    return name


def test_new_names_step_aside_for_names_of_the_model() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["x_quantized"], name="x_scale"),
        helper.make_node("MatMul", ["x_quantized", "w"], ["y"], name="layer"),
        helper.make_node("MatMul", ["x", "w"], ["z"], name="other"),
    ]
    outputs = [value("y", ["n", 4]), value("z", ["n", 4])]
    proto = model_of(nodes, {"w": np.eye(4, dtype=np.float32)}, [value("x", ["n", 4])], outputs)

    lowered = lower_static(proto, record_with(layer_of("layer", x="x_quantized"), layer_of("other")))

    onnx.checker.check_model(lowered, full_check=True)
    names = [node.name for node in lowered.graph.node]
    assert len(names) == len(set(names))


def test_an_older_opset_is_raised_only_for_scales_per_channel() -> None:
    w = np.eye(4, dtype=np.float32)
    channels = WeightScale(scales=(0.01,) * 4, axis=1)

    per_tensor = lower_static(one_matmul(w, opset=11), record_with(layer_of("layer")))
    per_channel = lower_static(one_matmul(w, opset=11), record_with(layer_of("layer", weight=channels)))

    assert [per_tensor.opset_import[0].version, per_channel.opset_import[0].version] == [11, 13]
    onnx.checker.check_model(per_channel, full_check=True)


def test_a_record_of_another_model_is_refused() -> None:
    second = LayerRecord(layer="layer", op_type="MatMul", activation=scale_of("x"), second=scale_of("z"))
    for layer, fault in (
        (layer_of("layer", "Gemm"), "is a Gemm in the record and a MatMul in the model"),
        (layer_of("layer", x="z"), "a scale for 'z', the model gives it 'x'"),
        (layer_of("layer", weight=WeightScale(scales=(0.1,) * 5, axis=1)), "5 scales on axis 1"),
        (layer_of("layer", weight=WeightScale(scales=(0.1,) * 4, axis=2)), "4 scales on axis 2"),
        (second, "a scale for 'z', the model gives it 'w'"),
    ):
        with pytest.raises(LoweringError, match=fault):
            lower_static(one_matmul(np.eye(4, dtype=np.float32)), record_with(layer))


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_weights_that_are_no_numbers_are_refused(bad: float) -> None:
    w = np.eye(4, dtype=np.float32)
    w[1, 2] = bad

    with pytest.raises(LoweringError, match="w holds 1 NaN or infinite"):
        lower_static(one_matmul(w), record_with(layer_of("layer")))
    with pytest.raises(LoweringError, match="w holds 1 NaN or infinite"):
        lower_dynamic(one_matmul(w), "tensor")


# --- dynamic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_a_dynamic_encoder_stays_close_to_the_float_one(encoder: Model, granularity: str) -> None:
    feeds, loaded = ids(4, 7), load_graph(encoder)

    lowered = lower_dynamic(loaded, "tensor" if granularity == "tensor" else "channel")

    onnx.checker.check_model(lowered, full_check=True)
    (expected,), (got,) = run(loaded, feeds), run(lowered, feeds)
    assert np.dot(expected.ravel(), got.ravel()) > 0.995 * np.linalg.norm(expected) * np.linalg.norm(got)
    assert {n.name for n in lowered.graph.node if n.op_type == "MatMulInteger"} == set(WEIGHT_LAYERS)
    assert {n.name for n in lowered.graph.node if n.op_type == "MatMul"} == set(PRODUCTS)
    read = Counter(n.input[0] for n in lowered.graph.node if n.op_type == "DynamicQuantizeLinear")
    assert set(read.values()) == {1}
    assert len(read) == 5  # query, key and value read one tensor


def test_a_model_without_layers_cannot_be_dynamic() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")

    with pytest.raises(LoweringError, match="nothing can be INT8 here"):
        lower_dynamic(model_of([node], {}, [value("x", [2, 4])], [value("y", [2, 4])]), "tensor")
