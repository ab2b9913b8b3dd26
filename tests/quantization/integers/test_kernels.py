"""Integer kernels against ONNX Runtime's float kernels, on integers small enough for both to be exact."""

from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.quantization.deploy_models import plain_run
from workbench.quantization.integers.kernels import (
    EXACT_FLOAT32,
    average_pool,
    conv,
    conv_transpose,
    exact_type,
    product,
)
from workbench.testing.encoder import model_of, value


def by_onnxruntime(op_type: str, x: np.ndarray, weight: np.ndarray | None, attributes: dict[str, Any]) -> np.ndarray:
    inputs = ["x"] if weight is None else ["x", "w"]
    node = helper.make_node(op_type, inputs, ["y"], name="node", **attributes)
    values = {} if weight is None else {"w": weight.astype(np.float32)}
    x_info = value("x", list(x.shape))
    model: onnx.ModelProto = model_of([node], values, [x_info], [onnx.ValueInfoProto(name="y")], opset=19)
    return plain_run(model, {"x": x.astype(np.float32)})["y"]


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-255, 256, shape).astype(np.float32)


geometry = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "rank": st.integers(1, 3),
        "groups": st.integers(1, 3),
        "kernel": st.lists(st.integers(1, 3), min_size=3, max_size=3),
        "strides": st.lists(st.integers(1, 3), min_size=3, max_size=3),
        "dilations": st.lists(st.integers(1, 2), min_size=3, max_size=3),
        "pads": st.lists(st.integers(0, 2), min_size=6, max_size=6),
        "auto_pad": st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
    }
)


def common(case: dict[str, Any]) -> dict[str, Any]:
    rank = case["rank"]
    attributes = {name: case[name][:rank] for name in ("strides", "dilations")}
    attributes |= {"kernel_shape": case["kernel"][:rank], "group": case["groups"]}
    if case["auto_pad"] == "NOTSET":
        return attributes | {"pads": [*case["pads"][:rank], *case["pads"][3 : 3 + rank]]}
    return attributes | {"auto_pad": case["auto_pad"]}


@settings(max_examples=60, deadline=None)
@given(case=geometry)
def test_conv_equals_the_float_kernel(case: dict[str, Any]) -> None:
    rng, rank, groups = np.random.default_rng(case["seed"]), case["rank"], case["groups"]
    attributes = common(case)
    if case["auto_pad"].startswith("SAME"):
        attributes["dilations"] = [1] * rank  # ONNX Runtime refuses the combination
    x = integers(rng, 2, 2 * groups, *[7, 6, 5][:rank])
    w = integers(rng, 3 * groups, 2, *case["kernel"][:rank])

    found = conv(x, w, attributes, 255 * 255 * w[0].size)

    np.testing.assert_array_equal(found, by_onnxruntime("Conv", x, w, attributes))


@settings(max_examples=60, deadline=None)
@given(case=geometry, extra=st.booleans())
def test_conv_transpose_equals_the_float_kernel(case: dict[str, Any], extra: bool) -> None:
    rng, rank, groups = np.random.default_rng(case["seed"]), case["rank"], case["groups"]
    attributes = common(case)
    if case["auto_pad"] != "NOTSET":
        attributes["dilations"] = [1] * rank
        attributes["auto_pad"] = "VALID"
    else:
        attributes["pads"] = [0] * 2 * rank if case["seed"] % 2 else [1] * rank + [0] * rank
    if extra:
        attributes["output_padding"] = [min(1, s - 1) for s in attributes["strides"]]
    x = integers(rng, 2, 2 * groups, *[4, 3, 3][:rank])
    w = integers(rng, 2 * groups, 3, *case["kernel"][:rank])

    found = conv_transpose(x, w, attributes, 255 * 255 * 2 * w[0].size)

    np.testing.assert_array_equal(found, by_onnxruntime("ConvTranspose", x, w, attributes))


@settings(max_examples=60, deadline=None)
@given(
    case=geometry,
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
)
def test_average_pool_equals_the_float_kernel(case: dict[str, Any], ceil_mode: bool, count_include_pad: bool) -> None:
    rank = case["rank"]
    attributes = common(case) | {"count_include_pad": int(count_include_pad)}
    del attributes["group"], attributes["dilations"]
    if "pads" in attributes:
        attributes["ceil_mode"] = int(ceil_mode)
        kernel = attributes["kernel_shape"]  # ONNX wants pads smaller than the kernel
        attributes["pads"] = [min(p, k - 1) for p, k in zip(attributes["pads"], [*kernel, *kernel], strict=True)]
    else:
        # with strides beyond the kernel the padding comes out negative: ONNX does not say what that means, and ONNX
        # Runtime's pooling and convolution read it differently
        pairs = zip(attributes["strides"], attributes["kernel_shape"], strict=True)
        attributes["strides"] = [min(pair) for pair in pairs]
    x = integers(np.random.default_rng(case["seed"]), 2, 3, *[7, 6, 5][:rank])

    found = average_pool(x, attributes)

    np.testing.assert_allclose(found, by_onnxruntime("AveragePool", x, None, attributes), rtol=2e-7, atol=2e-5)


def test_products_are_exact_where_float32_would_not_be() -> None:
    a = np.full((1, 4096), 255, np.float32)
    b = np.full((4096, 1), 127, np.float32)
    b[-1] = 126  # an odd sum beyond 2**24

    found = product(a, b, 255 * 127 * 4096)

    assert found.dtype == np.float64
    assert int(found[0, 0]) == 255 * (127 * 4096 - 1)
    assert exact_type(EXACT_FLOAT32) is np.float32
    assert exact_type(EXACT_FLOAT32 + 1) is np.float64
