"""What an offline model computes: halves between kernels, float32 inside them, whole numbers in INT8 layers."""

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from tests.cann_emulator.atc.compiling import built, mlp
from tests.quantization.deploy_models import plain_run, quantized_matmul, words
from workbench.cann_emulator.executable import Executable, ExecutionFailed
from workbench.cann_emulator.om import OfflineModel
from workbench.cann_emulator.rounding import rounded_program
from workbench.quantization.interpreter import Interpreter
from workbench.testing.encoder import ids, tiny_encoder

Array = npt.NDArray[np.float32]


def half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def run(model: OfflineModel, feeds: dict[str, npt.NDArray[np.generic]]) -> dict[str, Array]:
    return Executable(model, threads=1).run(feeds)


def test_a_float16_kernel_rounds_its_inputs_its_constants_and_its_result_and_nothing_inside() -> None:
    """Products of whole numbers below 2048 make every float32 sum exact, so that NumPy gives the same bits."""
    proto = mlp(16, 8, 4, batch=5)
    for tensor in proto.graph.initializer:
        values = np.round(numpy_helper.to_array(tensor) * 900) / 64
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    w = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    x = (np.round(np.random.default_rng(3).standard_normal((5, 16)) * 30) / 8).astype(np.float32)

    hidden = half(np.maximum(half(x) @ half(w["w0"]) + half(w["b0"]), 0))
    expected = half((hidden.astype(np.float64) @ half(w["w1"]) + half(w["b1"])).astype(np.float32))

    result = run(built(proto, precision_mode="force_fp16"), {"x": x})["y"]
    np.testing.assert_array_equal(result, expected)
    assert not np.array_equal(result, run(built(proto), {"x": x})["y"])


@pytest.mark.parametrize("mode", ["force_fp16", "allow_mix_precision_bf16"])
def test_no_optimizer_reaches_across_a_rounding(mode: str) -> None:
    """Every node a kernel of its own: LayerNorm, Gelu and Softmax lie in pieces with roundings between them, and the
    session gives the bits of one that optimizes nothing."""
    model = built(tiny_encoder(batch=2, length=16), precision_mode=mode, oo_level="O1")

    expected = plain_run(rounded_program(model, 0).proto()[0], ids(2, 16), ["logits"])["logits"]

    np.testing.assert_array_equal(run(model, ids(2, 16))["logits"], expected)


def test_an_index_outside_the_table_fails_the_execution() -> None:
    with pytest.raises(ExecutionFailed, match="Gather"):
        run(built(tiny_encoder(batch=1, length=7)), {"ids": np.full((1, 7), 10**6)})


def test_nan_becomes_zero_and_infinity_the_end_of_the_range_in_int8() -> None:
    proto = quantized_matmul(np.eye(3, dtype=np.int8), words(1.0))
    x = np.float32([[np.nan, np.inf, -np.inf]])

    for mode in ("must_keep_origin_dtype", "force_fp16"):
        model = built(proto, precision_mode=mode, input_shape="x:1,3")
        np.testing.assert_array_equal(run(model, {"x": x})["y"], [[0, 127, -128]])


@st.composite
def quantized_matmuls(draw: st.DrawFn) -> tuple[onnx.ModelProto, Array]:
    """A random layer between AscendQuant and AscendDequant, and what it reads."""
    inner, outputs = draw(st.integers(1, 600)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extreme = draw(st.booleans())
    weight = random.choice([-128, 127], (inner, outputs)) if extreme else random.integers(-128, 128, (inner, outputs))
    bias = np.int32(random.integers(-(2**24), 2**24, outputs)) if draw(st.booleans()) else None
    quant = {"scale": float(np.float32(draw(st.floats(0.01, 50)))), "offset": float(draw(st.integers(-128, 127)))}
    factors = random.uniform(1e-6, 1e-2, draw(st.sampled_from([1, outputs])))
    proto = quantized_matmul(weight.astype(np.int8), words(*factors), bias=bias, quant=quant)
    return proto, half((random.standard_normal((3, inner)) * 100).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(layer=quantized_matmuls())
def test_any_int8_product_between_halves_is_as_amct_simulates_it(layer: tuple[onnx.ModelProto, Array]) -> None:
    """amct.md §6.6, FORCE_FP16."""
    proto, x = layer

    model = built(proto, precision_mode="force_fp16", input_shape=f"x:3,{x.shape[1]}")

    np.testing.assert_array_equal(run(model, {"x": x})["y"], Interpreter(proto, force_fp16=True).run({"x": x})["y"])
