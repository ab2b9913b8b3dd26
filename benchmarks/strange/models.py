"""The generator: a specification drawn by seed → an ONNX file and samples for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

OPSETS = (7, 8, 9, 11, 12, 13, 15, 17, 18, 19, 21)
BODIES = ("dense", "image", "map", "audio", "ids", "tokens", "attention", "recurrent", "lstm")
HEADS = ("logits", "softmax", "sigmoid", "argmax", "embedding", "values", "boxes")
BATCHES = ("named", "minus_one", "anonymous", "one", "four", "absent")
EXTRAS = (
    *("none", "none", "constant_input", "if_constant", "if_data", "loop", "scan", "random", "nonzero"),
    *("half", "constant_nodes", "external", "initializer_inputs", "two_inputs", "dropout", "foreign_operator"),
)
WIDTHS, CLASSES = (8, 17, 24, 40, 64), (2, 3, 5, 11)
LENGTHS = (6, 10, 13)
"""Of sequences and half the side of images; the first set of files has 24, 5 and 10 throughout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """What one file is made of.

    Attributes:
        number: its place in the set; `seed` draws its weights and samples.
    """

    number: int
    seed: int
    opset: int
    body: str
    head: str
    batch: str
    extra: str
    width: int = 24
    classes: int = 5
    length: int = 10

    @property
    def name(self) -> str:
        return f"{self.number:02d}-{self.body}-{self.head}-{self.batch}-{self.extra}-o{self.opset}".replace("_", "")


@dataclass(slots=True, kw_only=True)
class _Graph:
    """A graph that grows node by node."""

    opset: int
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    count: int = 0

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        self.count += 1
        names = [f"t{self.count}_{i}" if i else f"t{self.count}" for i in range(outputs)]
        domain = attributes.pop("domain", "")
        self.nodes.append(
            helper.make_node(operator, inputs, names, f"{operator}_{self.count}", domain=domain, **attributes)
        )
        return names[0]

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"c{self.count}"))
        return f"c{self.count}"

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.normal(0, 1 / np.sqrt(max(1, np.prod(shape[:-1]))), shape))

    def kernel(self, *shape: int) -> str:
        return self.constant(self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape))

    def mean(self, name: str, axis: int, keep: bool) -> str:
        if self.opset >= 18:
            return self.add("ReduceMean", name, self.constant([axis], np.int64), keepdims=int(keep))
        return self.add("ReduceMean", name, axes=[axis], keepdims=int(keep))

    def dense(self, name: str, given: int, wanted: int) -> str:
        return self.add(
            "Add", self.add("MatMul", name, self.weight(given, wanted)), self.constant(self.rng.normal(0, 0.1, wanted))
        )


def draw_specifications(count: int, seed: int = 0) -> list[Specification]:
    """`count` files in which every opset, body, head, batch and extra occurs; deterministic.

    Another seed gives other combinations, weights and samples, and other sizes in every file.
    """
    rng = np.random.default_rng(seed)

    def column(choices: tuple[str | int, ...]) -> list[Any]:
        rounds = -(-count // len(choices))
        return [choices[i] for _ in range(rounds) for i in rng.permutation(len(choices))][:count]

    columns = [column(c) for c in (OPSETS, BODIES, HEADS, BATCHES, EXTRAS)]
    sizes: list[dict[str, int]] = [{}] * count
    if seed:
        drawn = zip(*(rng.choice(c, count) for c in (WIDTHS, CLASSES, LENGTHS)), strict=True)
        sizes = [{"width": int(w), "classes": int(c), "length": int(n)} for w, c, n in drawn]
    rows = zip(*columns, sizes, strict=True)
    return [
        Specification(
            number=i, seed=1000 * seed + i, opset=opset, body=body, head=head, batch=batch, extra=extra, **size
        )
        for i, (opset, body, head, batch, extra, size) in enumerate(rows)
    ]


def write_model(specification: Specification, folder: Path) -> tuple[Path, dict[str, Array], dict[str, Any]]:
    """The ONNX file, samples by input (first axis samples, no batch axis within), and inputs that never change."""
    s, rng = specification, np.random.default_rng(specification.seed)
    graph = _Graph(opset=s.opset, rng=rng)
    samples, constants = {}, {}
    size: Any = {"named": "batch", "minus_one": -1, "anonymous": None, "one": 1, "four": 4, "absent": 0}[s.batch]

    def given(name: str, shape: tuple[Any, ...], array: Array, at: int = 0, kind: int = TensorProto.FLOAT) -> str:
        """Declares an input whose batch stands at `at`, and its samples [samples, ...]."""
        dims = list(shape)
        if s.batch != "absent":
            dims.insert(at, size)
        graph.inputs.append(_value(name, kind, dims))
        samples[name] = array
        if s.batch == "absent":  # the graph works on a batch of one, made inside
            return _unsqueezed(graph, name, at)
        return name

    top, width, per_position = _body(graph, s, given)
    if s.extra == "two_inputs":
        other = given("other", (s.width,), rng.normal(size=(160, s.width)).astype(np.float32))
        extra = graph.dense(other, s.width, width)
        top = graph.add("Add", top, extra if not per_position else _unsqueezed(graph, extra, 1))
    top = _extra(graph, s, top, width, constants)
    outputs = _heads(graph, s, top, width, per_position)
    path = _written(graph, s, outputs, folder)
    return path, samples, constants


def _value(name: str, kind: int, dims: list[Any]) -> onnx.ValueInfoProto:
    value = helper.make_tensor_value_info(
        name, kind, [d if isinstance(d, str) or (d is not None and d >= 0) else None for d in dims]
    )
    for at, dim in enumerate(dims):
        if dim == -1:
            value.type.tensor_type.shape.dim[at].dim_value = -1
    return value


def _unsqueezed(graph: _Graph, name: str, axis: int) -> str:
    if graph.opset >= 13:
        return graph.add("Unsqueeze", name, graph.constant([axis], np.int64))
    return graph.add("Unsqueeze", name, axes=[axis])


def _body(graph: _Graph, s: Specification, given: Any) -> tuple[str, int, bool]:
    """Returns the tensor [batch, width] or [batch, positions, width], its width, and whether it has positions."""
    rng = graph.rng
    if s.body in ("image", "map"):
        free, side = s.seed % 2, 16 if s.length == 10 else 2 * s.length
        shape = ("height", "width") if free else (side, side)
        base = rng.normal(size=(160, 3, side, side)).astype(np.float32).cumsum(axis=-1) / 4
        x = given("image", (3, *shape), base)
        x = graph.add("Relu", graph.add("Conv", x, graph.kernel(8, 3, 3, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        x = graph.add(
            "Relu",
            graph.add(
                "Conv", x, graph.kernel(s.width, 8, 3, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
            ),
        )
        if s.body == "map":
            x = graph.add("Conv", x, graph.kernel(s.width, s.width, 1, 1), kernel_shape=[1, 1])
            x = graph.add("Reshape", x, graph.constant([0, s.width, -1], np.int64))
            return graph.add("Transpose", x, perm=[0, 2, 1]), s.width, True
        return graph.add("Flatten", graph.add("GlobalAveragePool", x)), s.width, False
    if s.body == "audio":
        x = given(
            "audio",
            (1, "frames" if s.seed % 2 else 128),
            rng.normal(size=(160, 1, 128)).astype(np.float32).cumsum(axis=-1) / 8,
        )
        x = graph.add("Relu", graph.add("Conv", x, graph.kernel(16, 1, 7), kernel_shape=[7], pads=[3, 3], strides=[2]))
        x = graph.add(
            "Relu", graph.add("Conv", x, graph.kernel(s.width, 16, 5), kernel_shape=[5], pads=[2, 2], strides=[2])
        )
        return graph.add("Transpose", x, perm=[0, 2, 1]), s.width, True
    if s.body in ("ids", "tokens"):
        positions = s.length + 2
        drawn = rng.integers(0, 40, (160, positions))
        ids = given("ids", ("length" if s.seed % 2 else positions,), drawn, kind=TensorProto.INT64)
        x = graph.add("Gather", graph.weight(40, s.width), ids)
        x = graph.add("Relu", graph.dense(x, s.width, s.width))
        return (x, s.width, True) if s.body == "tokens" else (graph.mean(x, 1, False), s.width, False)
    if s.body == "attention":
        drawn = rng.normal(size=(160, s.length, s.width)).astype(np.float32)
        x = given("features", ("length" if s.seed % 2 else s.length, s.width), drawn)
        q, k, v = (graph.dense(x, s.width, s.width) for _ in range(3))
        scores = graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 2, 1]))
        x = graph.add("MatMul", graph.add("Sigmoid", scores), v)
        return x, s.width, True
    if s.body == "recurrent":
        x = given("frame", (16,), rng.normal(size=(160, 16)).astype(np.float32))
        state = given("state", (2, s.width), np.tanh(rng.normal(size=(160, 2, s.width))).astype(np.float32), at=1)
        new = graph.add("Tanh", graph.add("Add", graph.dense(state, s.width, s.width), graph.dense(x, 16, s.width)))
        graph.nodes.append(helper.make_node("Identity", [new], ["state_out"], "state_out"))
        return graph.mean(new, 0, False), s.width, False
    if s.body == "lstm":
        x = given("sequence", (8, 16), rng.normal(size=(160, 8, 16)).astype(np.float32), at=1)
        size = s.width
        w = graph.constant(rng.normal(0, 0.2, (1, 4 * size, 16)))
        r = graph.constant(rng.normal(0, 0.2, (1, 4 * size, size)))
        graph.count += 1
        last = f"t{graph.count}"
        graph.nodes.append(helper.make_node("LSTM", [x, w, r], ["", last], "LSTM_0", hidden_size=size))
        squeezed = (
            graph.add("Squeeze", last, graph.constant([0], np.int64))
            if graph.opset >= 13
            else graph.add("Squeeze", last, axes=[0])
        )
        return graph.dense(squeezed, size, s.width), s.width, False
    x = given("x", (16,), rng.normal(size=(160, 16)).astype(np.float32))
    x = graph.add("Relu", graph.dense(x, 16, 32))
    return graph.add("Relu", graph.dense(x, 32, s.width)), s.width, False


def _extra(graph: _Graph, s: Specification, top: str, width: int, constants: dict[str, Any]) -> str:
    if s.extra in ("constant_input", "if_constant"):
        name = "rate"
        graph.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
        constants[name] = 16000
        if s.extra == "constant_input":
            scaled = graph.add("Cast", name, to=TensorProto.FLOAT)
            return graph.add("Mul", top, graph.add("Mul", scaled, graph.constant(1 / 16000)))
        return _branches(graph, graph.add("Equal", name, graph.constant(16000, np.int64)), top, width)
    if s.extra == "if_data":
        flat = graph.add("Reshape", top, graph.constant([-1], np.int64))
        total = graph.add("ReduceMean", flat, keepdims=0)
        return _branches(graph, graph.add("Less", total, graph.constant(0.1)), top, width)
    if s.extra == "loop":
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["go"], ["go_on"], "keep"),
                helper.make_node("MatMul", ["carried", "loop_weight"], ["multiplied"], "inside"),
                helper.make_node("Tanh", ["multiplied"], ["carried_out"], "bound"),
            ],
            "body",
            [
                helper.make_tensor_value_info("step", TensorProto.INT64, []),
                helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
            ],
            [
                helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
                helper.make_tensor_value_info("carried_out", TensorProto.FLOAT, None),
            ],
            [numpy_helper.from_array(graph.rng.normal(0, 0.3, (width, width)).astype(np.float32), "loop_weight")],
        )
        return graph.add("Loop", graph.constant(3, np.int64), graph.constant(True, np.bool_), top, body=body)
    if s.extra == "scan" and s.opset >= 9:
        turned = graph.add("Reshape", top, graph.constant([-1, width], np.int64))
        body = helper.make_graph(
            [
                helper.make_node("Add", ["sum_in", "row"], ["sum_out"], "add"),
                helper.make_node("Tanh", ["row"], ["row_out"], "row_tanh"),
            ],
            "scan_body",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [width]) for n in ("sum_in", "row")],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [width]) for n in ("sum_out", "row_out")],
        )
        graph.count += 1
        rows = f"t{graph.count}"
        graph.nodes.append(
            helper.make_node(
                "Scan",
                [graph.constant(np.zeros(width)), turned],
                [f"{rows}_sum", rows],
                "Scan_0",
                body=body,
                num_scan_inputs=1,
            )
        )
        return graph.add("Reshape", rows, graph.add("Shape", top))
    if s.extra == "random":
        noise = graph.add("RandomNormalLike", top, scale=0.05)
        return graph.add("Add", top, noise)
    if s.extra == "dropout":
        return graph.add("Dropout", top)
    if s.extra == "foreign_operator":
        return graph.add("Sparkle", top, domain="com.example")
    return top


def _branches(graph: _Graph, condition: str, top: str, width: int) -> str:
    def branch(name: str) -> onnx.GraphProto:
        weight = numpy_helper.from_array(graph.rng.normal(0, 0.2, (width, width)).astype(np.float32), f"{name}_weight")
        nodes = [helper.make_node("MatMul", [top, f"{name}_weight"], [f"{name}_out"], f"{name}_matmul")]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)], [weight]
        )

    return graph.add("If", condition, then_branch=branch("yes"), else_branch=branch("no"))


def _heads(graph: _Graph, s: Specification, top: str, width: int, per_position: bool) -> list[tuple[str, str, int]]:
    """(tensor, name of the output, element type)."""
    kind = TensorProto.FLOAT
    last = 2 if per_position else 1
    if s.extra == "nonzero":
        flat = graph.add("Reshape", graph.dense(top, width, 1), graph.constant([-1], np.int64))
        positive = graph.add("Greater", flat, graph.constant([0.0]))
        return [(graph.add("NonZero", positive), "found", TensorProto.INT64)]
    if s.head == "boxes" and per_position:
        boxes = graph.add("Sigmoid", graph.dense(top, width, 4))
        scores = graph.add("Sigmoid", graph.dense(top, width, 2))
        return [(boxes, "boxes", kind), (scores, "scores", kind)]
    if s.head == "embedding":
        x = graph.dense(top, width, 8)
        norm = graph.add("LpNormalization", x, axis=last, p=2)
        return [(norm, "embedding", kind)]
    if s.head == "sigmoid":
        return [(graph.add("Sigmoid", graph.dense(top, width, 1)), "probability", kind)]
    logits = graph.dense(top, width, s.classes)
    if s.head == "softmax":
        return [(graph.add("Softmax", logits, axis=last), "output", kind)]
    if s.head == "argmax":
        return [(graph.add("ArgMax", logits, axis=last, keepdims=0), "ids_out", TensorProto.INT64)]
    if s.head == "values":
        return [(graph.add("Tanh", logits), "y", kind)]
    return [(logits, "logits", kind)]


def _written(graph: _Graph, s: Specification, outputs: list[tuple[str, str, int]], folder: Path) -> Path:
    for tensor, name, _ in outputs:
        graph.nodes.append(helper.make_node("Identity", [tensor], [name], name))
    declared = [helper.make_tensor_value_info(name, kind, None) for _, name, kind in outputs]
    if s.body == "recurrent":
        declared.append(helper.make_tensor_value_info("state_out", TensorProto.FLOAT, None))
    weights, nodes, inputs = graph.weights, graph.nodes, graph.inputs
    if s.extra == "constant_nodes":
        nodes = [helper.make_node("Constant", [], [w.name], f"constant_{w.name}", value=w) for w in weights] + nodes
        weights = []
    if s.extra == "initializer_inputs":
        inputs = inputs + [helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in weights]
    imports = [helper.make_opsetid("", s.opset)]
    if s.extra == "foreign_operator":
        imports.append(helper.make_opsetid("com.example", 1))
    proto = helper.make_model(
        helper.make_graph(nodes, "strange", inputs, declared, weights), opset_imports=imports, ir_version=8
    )
    if s.extra == "half":
        proto = _halved(proto)
    path = folder / "model.onnx"
    if s.extra == "external":
        onnx.save_model(proto, str(path), save_as_external_data=True, location="model.data", size_threshold=64)
    else:
        path.write_bytes(proto.SerializeToString())
    return path


def _halved(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Float tensors as float16, inputs and outputs too."""
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in [*proto.graph.input, *proto.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return proto
