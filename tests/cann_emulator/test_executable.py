"""What an offline model computes: halves between kernels, float32 inside them, whole numbers in INT8 layers."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from tests.cann_emulator.bert import LITTLE, bert, tokens
from tests.cann_emulator.handmade import mlp, offline_model
from tests.quantization.deploy_models import plain_run, quantized_matmul, words
from workbench.cann_emulator.executable import Executable, ExecutionFailed
from workbench.cann_emulator.om import Dtype, OfflineModel
from workbench.cann_emulator.rounding import rounded_program
from workbench.quantization.interpreter import Interpreter
from workbench.testing.encoder import tiny_encoder

Array = npt.NDArray[np.float32]
FUSED = (("matmul0", "add0", "relu0"), ("matmul1", "add1"))


def half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def weights(proto: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def run(model: OfflineModel, feeds: dict[str, npt.NDArray[np.generic]], gear: int = 0) -> dict[str, Array]:
    return Executable(model, threads=1).run(feeds, gear)


def x_of(batch: int, width: int, spread: float = 1.0) -> Array:
    return (np.random.default_rng(3).standard_normal((batch, width)) * spread).astype(np.float32)


def test_a_float16_kernel_rounds_its_inputs_its_constants_and_its_result_and_nothing_inside() -> None:
    """Products of whole numbers below 2048 make every float32 sum exact, so that NumPy gives the same bits."""
    proto = mlp(16, 8, 4, batch=5)
    for tensor in proto.graph.initializer:
        values = np.round(numpy_helper.to_array(tensor) * 900) / 64
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    w, x = weights(proto), x_of(5, 16)
    x = (np.round(x * 30) / 8).astype(np.float32)

    hidden = half(np.maximum(half(x) @ half(w["w0"]) + half(w["b0"]), 0))
    expected = half((hidden.astype(np.float64) @ half(w["w1"]) + half(w["b1"])).astype(np.float32))

    result = run(offline_model(proto, groups=FUSED), {"x": x})["y"]
    np.testing.assert_array_equal(result, expected)
    assert not np.array_equal(result, run(offline_model(proto, dtype="float32"), {"x": x})["y"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_optimizer_reaches_across_a_rounding(dtype: Dtype) -> None:
    """Every node a kernel of its own: LayerNorm, Gelu and Softmax lie in pieces with roundings between them, and the
    session gives the bits of one that optimizes nothing."""
    proto, feeds = bert(LITTLE, batch=2, length=16), tokens(LITTLE, 2, 16)
    model = offline_model(proto, dtype=dtype)

    expected = plain_run(rounded_program(model, 0).proto()[0], dict(feeds), ["logits"])["logits"]

    np.testing.assert_array_equal(run(model, feeds)["logits"], expected)


def test_an_index_outside_the_table_fails_the_execution() -> None:
    feeds = {"ids": np.full((1, 7), 10**6)}

    with pytest.raises(ExecutionFailed, match="Gather"):
        run(offline_model(tiny_encoder()), feeds)


def test_nan_becomes_zero_and_infinity_the_end_of_the_range_in_int8() -> None:
    proto = quantized_matmul(np.eye(3, dtype=np.int8), words(1.0))
    x = np.float32([[np.nan, np.inf, -np.inf]])

    for dtype in ("float32", "float16"):
        y = run(offline_model(proto, dtype=dtype), {"x": x})["y"]
        np.testing.assert_array_equal(y, [[0, 127, -128]])


class QuantizedMatmul(NamedTuple):
    """A random layer between AscendQuant and AscendDequant."""

    proto: onnx.ModelProto
    x: Array


@st.composite
def quantized_matmuls(draw: st.DrawFn) -> QuantizedMatmul:
    inner, outputs = draw(st.integers(1, 600)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extreme = draw(st.booleans())
    weight = random.choice([-128, 127], (inner, outputs)) if extreme else random.integers(-128, 128, (inner, outputs))
    bias = np.int32(random.integers(-(2**24), 2**24, outputs)) if draw(st.booleans()) else None
    quant = {"scale": float(np.float32(draw(st.floats(0.01, 50)))), "offset": float(draw(st.integers(-128, 127)))}
    factors = random.uniform(1e-6, 1e-2, draw(st.sampled_from([1, outputs])))
    proto = quantized_matmul(weight.astype(np.int8), words(*factors), bias=bias, quant=quant)
    return QuantizedMatmul(proto, (random.standard_normal((3, inner)) * 100).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(layer=quantized_matmuls())
def test_any_int8_product_between_halves_is_amcts_half_precision_simulation(layer: QuantizedMatmul) -> None:
    """amct.md §6.6, FORCE_FP16."""
    model = offline_model(layer.proto, truncate_deq_scale=True)
    x = half(layer.x)

    expected = Interpreter(layer.proto, force_fp16=True).run({"x": x})["y"]

    np.testing.assert_array_equal(run(model, {"x": x})["y"], expected)
