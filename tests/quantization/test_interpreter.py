"""The reference interpreter: equal to AMCT's simulation, and exact where a CPU's INT8 kernels are not."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.data import AMCT, AMCT_CASES
from tests.quantization.deploy_models import (
    golden_batches,
    golden_float_model,
    golden_record,
    min_max_record,
    plain_run,
    quantized_matmul,
    words,
)
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.testing.encoder import ids, model_of, tiny_encoder, value
from workbench.values.errors import LoweringError, MeasureError


@pytest.mark.parametrize("case", AMCT_CASES)
def test_golden_deploy_models_give_what_amcts_fake_quant_models_give_bit_for_bit(case: str) -> None:
    folder = AMCT / case
    theirs = Interpreter(onnx.load(folder / "q_deploy_model.onnx"))
    proto = golden_float_model(folder)
    ours = Interpreter(lower_deploy(proto, golden_record(folder, proto)))

    for batch in golden_batches(folder):
        expected = plain_run(folder / "q_fake_quant_model.onnx", {"x": batch})["y"]
        np.testing.assert_array_equal(theirs.run({"x": batch})["y"], expected)
        np.testing.assert_array_equal(ours.run({"x": batch})["y"], expected)


def test_equal_feeds_give_equal_bits_whatever_is_asked_for_besides() -> None:
    proto = tiny_encoder()
    model = lower_deploy(proto, min_max_record(proto, ids(16, 12)))
    feeds = ids(3, 5)
    first, second = Interpreter(model), Interpreter(model, threads=2)

    plain = first.run(feeds)["logits"]
    named = first.run(feeds, ["gelu_full_y", "softmax_y"])

    np.testing.assert_array_equal(named["logits"], plain)
    np.testing.assert_array_equal(second.run(feeds)["logits"], plain)
    np.testing.assert_allclose(named["softmax_y"].sum(axis=-1), 1, rtol=1e-6)
    expected = plain_run(proto, feeds)["logits"]
    assert np.vdot(plain, expected) / np.linalg.norm(plain) / np.linalg.norm(expected) > 0.99


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    scale=st.floats(0.01, 100),
    offset=st.integers(-128, 127),
    mode=st.sampled_from(["Round", "Floor", "Ceil", "Trunc"]),
)
def test_quantization_rounds_scales_and_saturates_as_documented(
    seed: int, scale: float, offset: int, mode: str
) -> None:
    x = np.random.default_rng(seed).normal(0, 3, (5, 4)).astype(np.float32)
    x.flat[:4] = [0.0, np.float32(1e30), np.float32(-1e30), np.float32(0.5 / scale)]
    quant = {"scale": scale, "offset": float(offset), "round_mode": mode}
    model = quantized_matmul(np.eye(4, dtype=np.int8), words(1.0), quant=quant)

    values = Interpreter(model).run({"x": x}, ["q"])

    rounding = {"Round": np.rint, "Floor": np.floor, "Ceil": np.ceil, "Trunc": np.trunc}[mode]
    expected = np.clip(rounding(x * np.float32(scale)) + offset, -128, 127)
    np.testing.assert_array_equal(values["q"], expected.astype(np.int8))
    np.testing.assert_array_equal(values["y"], expected - offset)


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "MatMul"])
def test_sums_are_exact_where_float32_would_not_hold_them(op_type: str) -> None:
    channels = 5000
    weight = np.full((channels, 2), 127, np.int8)
    weight[0] = 126  # an odd sum beyond 2**24
    stored = {"Conv": weight.T[..., None, None], "ConvTranspose": weight[..., None, None]}.get(op_type, weight)
    shape = [1, channels] if op_type == "MatMul" else [1, channels, 1, 1]
    quant = {"scale": 1.0, "offset": -128.0, "dst_type": "INT8"}
    nodes = [
        helper.make_node("AscendQuant", ["x"], ["q"], name="quant", **quant),
        helper.make_node(op_type, ["q", "w"], ["p"], name="layer"),
        helper.make_node("AscendDequant", ["p", "param"], ["y"], name="dequant", dtype=0),
    ]
    model = model_of(nodes, {"w": stored, "param": words(1.0)}, [value("x", shape)], [value("y", None)])

    found = Interpreter(model).run({"x": np.full(shape, 255, np.float32)}, ["p"])["p"]

    assert found.ravel().tolist() == [255 * (127 * channels - 1)] * 2


def test_a_sum_beyond_int32_is_refused_with_its_value() -> None:
    bias = np.array([2**31 - 100], np.int32)
    model = quantized_matmul(np.ones((2, 1), np.int8), words(1.0), bias=bias)
    interpreter = Interpreter(model)

    assert interpreter.run({"x": np.float32([[49, 50]])})["y"][0, 0] == np.float32(2**31 - 1)
    with pytest.raises(MeasureError, match=r"bias: a sum reaches 2147483648, outside int32"):
        interpreter.run({"x": np.float32([[50, 50]])})


def test_truncated_factors_lose_their_low_thirteen_bits() -> None:
    factor = np.array([0x387C5AD1], np.uint32).view(np.float32)[0]
    model = quantized_matmul(np.ones((1, 1), np.int8), words(factor))
    feeds = {"x": np.float32([[3]])}

    plain = Interpreter(model).run(feeds)["y"][0, 0]
    truncated = Interpreter(model, truncate_deq_scale=True).run(feeds)["y"][0, 0]

    assert plain == np.float32(3) * factor
    assert truncated == np.float32(3) * np.array([0x387C4000], np.uint32).view(np.float32)[0]


def test_a_shift_narrows_to_int16_and_is_undone_by_the_factor() -> None:
    """floor(x / 2^N) clipped to int16, times factor · 2^N (amct.md §6.6); N is in bits 39:32."""
    for bias, x, wanted in (
        (np.array([300_000], np.int32), [[-1], [0], [7]], [32767 * 8 * 0.5] * 3),
        (None, [[-1], [15]], [-1 * 8 * 0.5, 1 * 8 * 0.5]),
    ):
        model = quantized_matmul(np.ones((1, 1), np.int8), words(0.5, high=3), bias=bias)
        assert Interpreter(model).run({"x": np.float32(x)})["y"][:, 0].tolist() == wanted


def test_force_fp16_computes_both_ends_in_half_precision() -> None:
    x = np.float32([[1.0003, 2.5, -3.1]])
    model = quantized_matmul(np.eye(3, dtype=np.int8), words(0.1), quant={"scale": 7.3, "offset": 5.0})

    values = Interpreter(model, force_fp16=True).run({"x": x}, ["q"])

    product = (x.astype(np.float16) * np.float16(7.3)).astype(np.float32)  # float16 times float16, rounded once
    q = np.clip(np.rint((product + 5).astype(np.float16).astype(np.float32)), -128, 127)
    np.testing.assert_array_equal(values["q"], q.astype(np.int8))
    factor = (np.float32([0.1]).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)[0]
    expected = ((q - 5).astype(np.float32) * factor).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(values["y"], expected)


def test_anti_quantization_undoes_a_quantization() -> None:
    nodes = [
        helper.make_node("AscendQuant", ["x"], ["q"], name="t.quant", scale=4.0, offset=-7.0, dst_type="INT8"),
        helper.make_node("AscendAntiQuant", ["q"], ["f"], name="t.anti", scale=0.25, offset=-7.0, dtype=0),
        helper.make_node("MaxPool", ["f"], ["y"], name="pool", kernel_shape=[2]),
    ]
    model = model_of(nodes, {}, [value("x", [1, 1, 4])], [value("y", [1, 1, 3])])

    found = Interpreter(model).run({"x": np.float32([[[1.1, -2.0, 0.3, 100]]])})["y"]

    assert found[0, 0].tolist() == [1.0, 0.25, (127 + 7) * 0.25]


def test_what_a_deploy_model_does_not_have_is_refused_by_name() -> None:
    for changes, message in (
        ({"quant": {"sqrt_mode": 1}}, r"layer\.quant: sqrt_mode"),
        ({"dequant": {"sqrt_mode": 1}}, r"layer\.dequant: sqrt_mode"),
        ({"quant": {"dst_type": "INT16"}}, r"dst_type INT16"),
        ({"quant": {"round_mode": "Up"}}, r"round_mode 'Up'.*Round, Floor, Ceil, Trunc"),
        ({"quant": {"offset": 0.5}}, r"offset 0\.5 is no whole number"),
        ({"dequant": {"dtype": 5}}, r"dtype 5"),
        ({"param": words(1.0, high=1 << 8)}, r"a shift of 0 to 16"),
        ({"param": np.float32([1.0])}, r"no vector of uint64"),
        ({"weight": np.eye(2, dtype=np.float32)}, r"its weight 'w' is float32, not int8"),
    ):
        arguments: dict[str, Any] = {"weight": np.eye(2, dtype=np.int8), "param": words(1.0), **changes}
        with pytest.raises(LoweringError, match=message):
            Interpreter(quantized_matmul(**arguments))


def test_feeds_and_names_that_do_not_fit_are_refused() -> None:
    interpreter = Interpreter(quantized_matmul(np.eye(2, dtype=np.int8), words(1.0)))
    x = np.zeros((1, 2), np.float32)
    for feeds, outputs, said in (
        ({}, (), "Input 'x' is not fed"),
        ({"x": x.astype(np.float64)}, (), "fed float64; the model takes float32"),
        ({"x": x, "z": x}, (), "no input 'z'"),
        ({"x": x}, ("nope",), "no tensor 'nope'"),
        ({"x": np.float32([[1, np.nan]])}, (), r"layer\.quant: its input 'x' holds NaN"),
    ):
        with pytest.raises(MeasureError, match=said):
            interpreter.run(feeds, outputs)
