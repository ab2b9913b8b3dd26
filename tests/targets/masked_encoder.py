"""The tiny encoder with a mask, as BERT has one: padding changes no answer, of the text or of its positions."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.testing.encoder import CLASSES, WIDTH, tiny_encoder, value


def masked_encoder() -> onnx.ModelProto:
    """`input_ids`, `attention_mask` [batch, length] → `logits` [batch, CLASSES] of the first position, and `tags`
    [batch, length, CLASSES]."""
    proto = tiny_encoder()
    graph = proto.graph
    nodes = {node.name: node for node in graph.node}
    nodes["embed"].input[1] = "input_ids"
    hidden = nodes["pool"].input[0]
    random = np.random.default_rng(8)
    constants = {
        "far": np.array(-10_000, np.float32),
        "heads_and_rows": np.array([1, 2]),
        "first": np.array(0),
        "tags_w": (random.normal(size=(WIDTH, CLASSES)) / 4).astype(np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    hide = [
        helper.make_node("Cast", ["attention_mask"], ["mask_float"], name="mask_cast", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "mask_float"], ["mask_left"], name="mask_left"),
        helper.make_node("Mul", ["mask_left", "far"], ["mask_far"], name="mask_far"),
        helper.make_node("Unsqueeze", ["mask_far", "heads_and_rows"], ["mask_wide"], name="mask_wide"),
        helper.make_node("Add", ["scale_y", "mask_wide"], ["masked_y"], name="masked"),
    ]
    nodes["softmax"].input[0] = "masked_y"
    nodes["pool"].CopyFrom(helper.make_node("Gather", [hidden, "first"], ["pool_y"], name="pool", axis=1))
    tags = helper.make_node("MatMul", [hidden, "tags_w"], ["tags"], name="tagger")
    order = list(graph.node)
    place = next(index for index, node in enumerate(order) if node.name == "softmax")
    del graph.node[:]
    graph.node.extend([*order[:place], *hide, *order[place:], tags])
    del graph.input[:]
    names, sizes = ("input_ids", "attention_mask"), ["batch", "length"]
    graph.input.extend(value(name, sizes, TensorProto.INT64) for name in names)
    graph.output.append(value("tags", [*sizes, CLASSES]))
    return proto
