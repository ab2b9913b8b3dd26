"""Strides moved up: not a bit of the answer changes, and windows before compute fewer positions."""

from itertools import product

import numpy as np
import onnx
from onnx import NodeProto, helper

from workbench.quantization.lowering.strides import with_strides_moved_up
from workbench.testing.encoder import model_of, run, value


def node(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs, [output], name=output, **attributes)


def conv(x: str, y: str, size: int, stride: int = 1, **attributes: object) -> NodeProto:
    pads = [size // 2] * 4
    return node("Conv", [x, f"w{size}"], y, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, **attributes)


def net(nodes: list[NodeProto], side: int, outputs: tuple[str, ...] = ("y",)) -> tuple[onnx.ModelProto, np.ndarray]:
    rng = np.random.default_rng(side)
    weights = {f"w{size}": rng.normal(size=(4, 4, size, size)).astype(np.float32) for size in (1, 3)}
    weights["by_pixel"] = rng.normal(size=(1, 1, side, side)).astype(np.float32)
    weights["by_column"] = rng.normal(size=side).astype(np.float32)
    weights["by_channel"] = rng.normal(size=(4, 1, 1)).astype(np.float32)
    given = [value("x", ["n", 4, side, side])]
    return model_of(nodes, weights, given, [value(name, None) for name in outputs]), rng.normal(
        size=(2, 4, side, side)
    ).astype(np.float32)


def strides(proto: onnx.ModelProto) -> dict[str, list[int]]:
    return {n.name: list(a.ints) for n in proto.graph.node for a in n.attribute if a.name == "strides"}


BOTTLENECK = [
    *(conv("x", "a", 1), node("Relu", ["a"], "b"), conv("b", "c", 3), node("Relu", ["c"], "d"), conv("d", "e", 1)),
    *(node("Mul", ["e", "by_channel"], "f"), node("Add", ["f", "x"], "g"), node("Relu", ["g"], "h")),
]


def test_a_residual_block_before_a_striding_one_computes_a_quarter_of_the_positions_to_the_bit() -> None:
    for side in (8, 9):
        nodes = [*BOTTLENECK, conv("h", "i", 1, 2), conv("h", "j", 1, 2), node("Add", ["i", "j"], "y")]
        proto, x = net(nodes, side)
        proto = onnx.shape_inference.infer_shapes(proto)  # shapes in the file are those of before

        after = with_strides_moved_up(proto)

        found = strides(after)
        assert (found["c"], found["e"], found["i"], found["j"]) == ([2, 2], [1, 1], [1, 1], [1, 1])
        assert [n.op_type for n in after.graph.node].count("MaxPool") == 1, "what the addition reads besides"
        assert np.array_equal(run(proto, {"x": x})[0], run(after, {"x": x})[0])
        assert strides(proto)["i"] == [2, 2], "what was given is not changed"


def test_strides_stay_where_somebody_reads_what_they_skip() -> None:
    for more, outputs in (
        ([conv("h", "i", 1, 2), conv("h", "y", 1, 3)], ("y", "i")),  # two strides
        ([conv("h", "y", 3, 2)], ("y",)),  # reads all pixels
        ([conv("h", "y", 1, 2), node("GlobalAveragePool", ["h"], "z")], ("y", "z")),
        ([conv("h", "y", 1, 2)], ("y", "h")),  # an output of the model
        ([node("Add", ["h", "by_pixel"], "i"), conv("i", "y", 1, 2)], ("y",)),  # a constant for each pixel
        ([node("Add", ["h", "by_column"], "i"), conv("i", "y", 1, 2)], ("y",)),
    ):
        proto, _ = net([*BOTTLENECK, *more], 9, outputs)

        assert with_strides_moved_up(proto) is proto, more


def test_everywhere_a_striding_convolution_of_one_pixel_gets_a_pool_before_it() -> None:
    for size, stride in product((1, 3), (1, 2, 3)):
        proto, x = net([node("Relu", ["x"], "a"), conv("a", "y", size, stride)], 9)

        after = with_strides_moved_up(proto, everywhere=True)

        pooled = [n.op_type for n in after.graph.node] == ["Relu", "MaxPool", "Conv"]
        assert pooled == (size == 1 and stride > 1)
        assert np.array_equal(run(proto, {"x": x})[0], run(after, {"x": x})[0])
