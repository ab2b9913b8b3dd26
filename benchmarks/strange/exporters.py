"""What real exporters write, one peculiarity a file: types, names, domains, operators, declarations that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.strange.case import Case

Array = npt.NDArray[Any]

N, D, C = 160, 24, 5
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(slots=True)
class Draft:
    """A model in the making; every node is named after its operator."""

    rng: np.random.Generator
    opset: int = 17
    ir: int = 8
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    samples: dict[str, Array] = field(default_factory=dict)
    domains: dict[str, int] = field(default_factory=dict)

    def node(self, op: str, *inputs: str, out: Sequence[str] | int = 1, domain: str = "", **attributes: Any) -> Any:
        at = len(self.nodes)
        names = [f"{op.lower()}{at}_{i}" for i in range(out)] if isinstance(out, int) else list(out)
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{at}", domain=domain, **attributes))
        if domain:
            self.domains.setdefault(domain, 1)
        return names[0] if len(names) == 1 else names

    def const(self, values: Any, dtype: Any = np.float32, name: str = "") -> str:
        name = name or f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int, name: str = "") -> str:
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return self.const(self.rng.normal(0, 1 / np.sqrt(fan), shape), name=name)

    def feed(self, name: str, array: Array, dims: Sequence[Any] | None = None, kind: int = 0) -> str:
        kind = kind or helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = ["batch", *array.shape[1:]] if dims is None else dims
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.samples[name] = array
        return name

    def floats(self, name: str, *shape: int, dims: Sequence[Any] | None = None) -> str:
        return self.feed(name, self.rng.normal(size=(N, *shape)).astype(np.float32), dims)

    def give(self, tensor: str, name: str, kind: int = FLOAT, dims: Sequence[Any] | None = None) -> None:
        if tensor != name:
            self.node("Identity", tensor, out=[name])
        self.outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def dense(self, x: str, given: int, wanted: int, act: str = "") -> str:
        y = self.node("Add", self.node("MatMul", x, self.weight(given, wanted)), self.const(np.full(wanted, 0.1)))
        return self.node(act, y) if act else y

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "exported", self.inputs, self.outputs, self.weights)
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, v) for d, v in self.domains.items())]
        return helper.make_model(graph, opset_imports=imports, ir_version=self.ir)


Maker = Callable[[Draft], Mapping[str, Any] | None]
EXPORTERS: dict[str, Maker] = {}
"""Name → what fills a draft; it may return fields of the case, and `edit`, a function of the finished proto."""


def exporter_case(name: str, folder: Path) -> Case:
    draft = Draft(np.random.default_rng(abs(hash_of(name))))
    more = dict(EXPORTERS[name](draft) or {})
    proto = draft.proto()
    edited = more.pop("edit", lambda proto: proto)(proto)
    path = folder / "model.onnx"
    path.write_bytes(edited if isinstance(edited, bytes) else edited.SerializeToString())
    fields = {"answers": {o.name: "values" for o in draft.outputs}, **more}
    return Case(name=name, model=path, samples=draft.samples, **fields)


def hash_of(name: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(name)) % (1 << 31)


def _case(make: Maker) -> Maker:
    EXPORTERS[make.__name__.lstrip("_")] = make
    return make


RIGHT, REFUSED = {"refused": False}, {"refused": True}


def _image(d: Draft, *, kind: Any = np.float32, last: bool = False) -> str:
    shape = (16, 16, 3) if last else (3, 16, 16)
    array = d.rng.normal(size=(N, *shape)).cumsum(axis=1) * 20 + 128
    return d.feed("image", np.clip(array, 0, 255).astype(kind))


def _classify(d: Draft, x: str, channels: int = 3, kernel: Sequence[int] = (3, 3)) -> str:
    pads = [k // 2 for k in kernel] * 2
    y = d.node("Relu", d.node("Conv", x, d.weight(8, channels, *kernel), kernel_shape=list(kernel), pads=pads))
    y = d.node("Flatten", d.node("GlobalAveragePool", y))
    return d.dense(y, 8, C)


# --- types ----------------------------------------------------------------------------------------------------


def _embedded(d: Draft, kind: Any) -> Mapping[str, Any]:
    ids = d.feed("input_ids", d.rng.integers(0, 40, (N, 12)).astype(kind))
    mask = d.feed("attention_mask", (np.arange(12) < d.rng.integers(4, 13, (N, 1))).astype(kind))
    x = d.dense(d.node("Gather", d.weight(40, D), ids), D, D, "Relu")
    share = d.node("Unsqueeze", d.node("Cast", mask, to=FLOAT), d.const([2], np.int64))
    d.give(d.dense(d.node("ReduceMean", d.node("Mul", x, share), axes=[1], keepdims=0), D, C), "logits")
    return RIGHT


@_case
def _int64_only(d: Draft) -> Mapping[str, Any]:
    return _embedded(d, np.int64)


@_case
def _int32_only(d: Draft) -> Mapping[str, Any]:
    return _embedded(d, np.int32)


@_case
def _bool_mask(d: Draft) -> Mapping[str, Any]:
    x = d.floats("features", 10, D)
    mask = d.feed("mask", d.rng.random((N, 10)) < 0.7)
    kept = d.node("Where", d.node("Unsqueeze", mask, d.const([2], np.int64)), d.dense(x, D, D, "Tanh"), d.const(0.0))
    d.give(d.dense(d.node("ReduceMean", kept, axes=[1], keepdims=0), D, C), "logits")
    return RIGHT


@_case
def _bool_only(d: Draft) -> Mapping[str, Any]:
    x = d.node("Cast", d.feed("flags", d.rng.random((N, 32)) < 0.4), to=FLOAT)
    d.give(d.dense(d.dense(x, 32, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _uint8_image(d: Draft) -> Mapping[str, Any]:
    x = d.node("Div", d.node("Cast", _image(d, kind=np.uint8), to=FLOAT), d.const(255.0))
    d.give(_classify(d, x), "logits")
    return RIGHT


@_case
def _uint8_channels_last(d: Draft) -> Mapping[str, Any]:
    x = d.node("Cast", _image(d, kind=np.uint8, last=True), to=FLOAT)
    d.give(_classify(d, d.node("Transpose", d.node("Mul", x, d.const(1 / 255)), perm=[0, 3, 1, 2])), "logits")
    return RIGHT


@_case
def _int16_audio(d: Draft) -> Mapping[str, Any]:
    x = d.feed("pcm", (d.rng.normal(size=(N, 1, 256)) * 4000).astype(np.int16))
    x = d.node("Mul", d.node("Cast", x, to=FLOAT), d.const(1 / 32768))
    d.give(_classify(d, x, 1, (7,)), "logits")
    return RIGHT


@_case
def _double_input(d: Draft) -> Mapping[str, Any]:
    x = d.node("Cast", d.feed("x", d.rng.normal(size=(N, 16))), to=FLOAT)
    d.give(d.dense(d.dense(x, 16, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _double_output(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C)
    d.give(d.node("Cast", y, to=TensorProto.DOUBLE), "logits", TensorProto.DOUBLE)
    return RIGHT


@_case
def _double_model(d: Draft) -> None:
    x = d.feed("x", d.rng.normal(size=(N, 16)))
    y = d.node("MatMul", x, d.const(d.rng.normal(size=(16, C)), np.float64))
    d.give(y, "logits", TensorProto.DOUBLE)


@_case
def _string_input(d: Draft) -> Mapping[str, Any]:
    x = d.feed("word", np.array([["yes", "no"][i % 2] for i in range(N)])[:, None], kind=TensorProto.STRING)
    y = d.node("LabelEncoder", x, domain="ai.onnx.ml", keys_strings=["yes", "no"], values_floats=[1.0, 2.0])
    d.domains["ai.onnx.ml"] = 2
    d.give(d.dense(y, 1, C), "logits")
    return REFUSED


@_case
def _string_output(d: Draft) -> None:
    """As scikit-learn's converter writes a classifier: labels beside probabilities."""
    labels, scores = d.node(
        *("LinearClassifier", d.floats("x", 16)),
        out=2,
        domain="ai.onnx.ml",
        coefficients=d.rng.normal(size=48).tolist(),
        intercepts=[0.1, 0.2, 0.3],
        classlabels_strings=["a", "b", "c"],
        post_transform="SOFTMAX",
    )
    d.give(labels, "label", TensorProto.STRING)
    d.give(scores, "scores")


@_case
def _sequence_output(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.floats("x", 16), 16, C)
    d.node("SequenceConstruct", y, y, out=["both"])
    d.outputs.append(helper.make_tensor_sequence_value_info("both", FLOAT, None))
    return REFUSED


@_case
def _zipmap_output(d: Draft) -> Mapping[str, Any]:
    y = d.node("Softmax", d.dense(d.floats("x", 16), 16, 3), axis=1)
    d.node("ZipMap", y, out=["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])

    def edit(proto: onnx.ModelProto) -> onnx.ModelProto:
        value = proto.graph.output.add(name="probabilities")
        inner = value.type.sequence_type.elem_type.map_type
        inner.key_type = INT64
        inner.value_type.tensor_type.elem_type = FLOAT
        return proto

    return {**REFUSED, "edit": edit}


@_case
def _optional_output(d: Draft) -> Mapping[str, Any]:
    d.node("Optional", d.dense(d.floats("x", 16), 16, C), out=["maybe"])
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    d.outputs.append(helper.make_value_info("maybe", kind))
    return REFUSED


@_case
def _int32_and_bool_outputs(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C)
    d.give(y, "logits")
    d.give(d.node("Cast", d.node("ArgMax", y, axis=1, keepdims=0), to=TensorProto.INT32), "klass", TensorProto.INT32)
    d.give(d.node("Greater", y, d.const(0.0)), "flags", TensorProto.BOOL)
    return RIGHT


@_case
def _bfloat16_weights(d: Draft) -> Mapping[str, Any]:
    raw = d.rng.normal(size=(16, D)).astype(np.float32)
    d.weights.append(helper.make_tensor("half", TensorProto.BFLOAT16, raw.shape, raw.ravel()))
    x = d.node("MatMul", d.floats("x", 16), d.node("Cast", "half", to=FLOAT))
    d.give(d.dense(d.node("Relu", x), D, C), "logits")
    return RIGHT


@_case
def _bfloat16_throughout(d: Draft) -> None:
    raw = d.rng.normal(size=(16, C)).astype(np.float32)
    d.weights.append(helper.make_tensor("half", TensorProto.BFLOAT16, raw.shape, raw.ravel()))
    x = d.node("MatMul", d.node("Cast", d.floats("x", 16), to=TensorProto.BFLOAT16), "half")
    d.give(d.node("Cast", x, to=FLOAT), "logits")


@_case
def _float16_stored_weights(d: Draft) -> Mapping[str, Any]:
    w = d.node("Cast", d.const(d.rng.normal(size=(16, D)), np.float16), to=FLOAT)
    d.give(d.dense(d.node("Relu", d.node("MatMul", d.floats("x", 16), w)), D, C), "logits")
    return RIGHT


# --- names and declarations -----------------------------------------------------------------------------------


def _named(d: Draft, given: str, wanted: str) -> Mapping[str, Any]:
    x = d.floats(given, 16)
    w = d.weight(16, D, name=f"{given}/kernel:0")
    d.give(d.dense(d.node("Relu", d.node("MatMul", x, w)), D, C), wanted)
    for node in d.nodes:
        node.name = f"{given}/{node.name}"
    return RIGHT


@_case
def _slashes(d: Draft) -> Mapping[str, Any]:
    return _named(d, "serving/default:0", "StatefulPartitionedCall/logits:0")


@_case
def _spaces(d: Draft) -> Mapping[str, Any]:
    return _named(d, "my input", "my output")


@_case
def _unicode(d: Draft) -> Mapping[str, Any]:
    return _named(d, "输入", "выход")


@_case
def _long_names(d: Draft) -> Mapping[str, Any]:
    return _named(d, "x" * 190, "logits_" + "y" * 400)


@_case
def _dots_and_dashes(d: Draft) -> Mapping[str, Any]:
    return _named(d, "onnx::MatMul-0.x", "45")


@_case
def _no_node_names(d: Draft) -> Mapping[str, Any]:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    for node in d.nodes:
        node.name = ""
    return RIGHT


@_case
def _same_node_names(d: Draft) -> Mapping[str, Any]:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    for node in d.nodes:
        node.name = "node"
    return RIGHT


@_case
def _wrong_value_info(d: Draft) -> None:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")

    def edit(proto: onnx.ModelProto) -> onnx.ModelProto:
        proto.graph.value_info.append(helper.make_tensor_value_info(proto.graph.node[0].output[0], FLOAT, [7, 3]))
        return proto

    return {"edit": edit}  # type: ignore[return-value]


@_case
def _wrong_output_shape(d: Draft) -> None:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits", dims=["batch", 3])


@_case
def _wrong_output_batch(d: Draft) -> None:
    """Traced with a batch of one, then given a free batch at the input alone."""
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits", dims=[1, C])


@_case
def _ir3(d: Draft) -> Mapping[str, Any]:
    d.opset, d.ir = 8, 3
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    d.inputs += [helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in d.weights]
    return RIGHT


@_case
def _zero_size_initializer(d: Draft) -> Mapping[str, Any]:
    x = d.node("Resize", _image(d), d.const([]), d.const([1, 1, 2, 2]), mode="nearest")
    d.give(_classify(d, x), "logits")
    return RIGHT


@_case
def _unused_input(d: Draft) -> Mapping[str, Any]:
    d.floats("unused", 7)
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _unused_initializers(d: Draft) -> Mapping[str, Any]:
    d.weight(64, 64, name="forgotten")
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _input_passed_through(d: Draft) -> Mapping[str, Any]:
    x = d.floats("x", 16)
    d.give(d.dense(d.dense(x, 16, D, "Relu"), D, C), "logits")
    d.give(x, "copy")
    return RIGHT


@_case
def _output_is_an_input(d: Draft) -> None:
    x = d.floats("x", 16)
    d.give(d.dense(d.dense(x, 16, D, "Relu"), D, C), "logits")
    d.outputs.append(d.inputs[0])


@_case
def _output_twice(d: Draft) -> None:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    d.outputs.append(d.outputs[0])


@_case
def _same_tensor_two_names(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C)
    d.give(y, "logits")
    d.give(y, "logits_again")
    return RIGHT


@_case
def _constant_output(d: Draft) -> Mapping[str, Any]:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    d.give(d.const(np.arange(8)), "anchors")
    return RIGHT


@_case
def _inner_tensor_is_an_output(d: Draft) -> Mapping[str, Any]:
    hidden = d.dense(d.floats("x", 16), 16, D, "Relu")
    d.outputs.append(helper.make_tensor_value_info(hidden, FLOAT, ["batch", D]))
    d.give(d.dense(hidden, D, C), "logits")
    return RIGHT


@_case
def _number_without_batch(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C)
    d.give(y, "logits")
    d.give(d.node("ReduceMean", y, keepdims=0), "mean_of_the_call", dims=[])
    return {"answers": {"mean_of_the_call": "ignored"}}


@_case
def _row_of_the_whole_call(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C)
    d.give(y, "logits")
    d.give(d.node("ReduceMean", y, axes=[0], keepdims=1), "mean_row", dims=[1, C])
    return {"answers": {"mean_row": "values"}}


@_case
def _table_beside(d: Draft) -> Mapping[str, Any]:
    """An output that depends on no input, and has no axis for samples."""
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    d.give(d.node("Identity", d.const(np.arange(7))), "anchors", dims=[7])
    return {"answers": {"anchors": "ignored"}}


@_case
def _all_axes_named(d: Draft) -> Mapping[str, Any]:
    x = d.feed("image", d.rng.normal(size=(N, 3, 16, 16)).astype(np.float32), dims=["N", "C", "H", "W"])
    d.give(_classify(d, x), "logits", dims=["N", "K"])
    return RIGHT


@_case
def _empty_past(d: Draft) -> None:
    """A cache that is empty at the first step: a size of zero."""
    past = d.feed("past", np.zeros((N, 0, D), np.float32), dims=["batch", "past", D])
    x = d.node("Concat", past, d.floats("x", 4, D), axis=1)
    d.give(d.dense(d.node("ReduceMean", d.dense(x, D, D, "Tanh"), axes=[1], keepdims=0), D, C), "logits")


@_case
def _unsorted_nodes(d: Draft) -> None:
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    d.nodes.reverse()


@_case
def _no_inputs(d: Draft) -> Mapping[str, Any]:
    d.give(d.dense(d.const(d.rng.normal(size=(1, 16))), 16, C), "logits")
    d.samples["x"] = np.zeros((N, 1), np.float32)
    return REFUSED


@_case
def _no_outputs(d: Draft) -> Mapping[str, Any]:
    d.dense(d.floats("x", 16), 16, C)
    return REFUSED


@_case
def _truncated(d: Draft) -> Mapping[str, Any]:
    d.give(d.dense(d.floats("x", 16), 16, C), "logits")
    return {**REFUSED, "edit": lambda proto: proto.SerializeToString()[:-200]}


# --- domains and functions ------------------------------------------------------------------------------------


@_case
def _local_function(d: Draft) -> Mapping[str, Any]:
    body = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "inside"),
        helper.make_node("Relu", ["product"], ["y"], "act"),
    ]
    function = helper.make_function("local", "Layer", ["x", "w"], ["y"], body, [helper.make_opsetid("", 17)])
    x = d.node("Layer", d.floats("x", 16), d.weight(16, D), domain="local")
    d.give(d.dense(d.node("Layer", x, d.weight(D, D), domain="local"), D, C), "logits")

    def edit(proto: onnx.ModelProto) -> onnx.ModelProto:
        proto.functions.append(function)
        return proto

    return {**RIGHT, "edit": edit}


@_case
def _sparse_initializer(d: Draft) -> None:
    dense = d.rng.normal(size=(16, D)).astype(np.float32) * (d.rng.random((16, D)) < 0.2)
    at = np.flatnonzero(dense).astype(np.int64)
    values = numpy_helper.from_array(dense.ravel()[at], "sparse_w")
    d.give(d.dense(d.node("Relu", d.node("MatMul", d.floats("x", 16), "sparse_w")), D, C), "logits")

    def edit(proto: onnx.ModelProto) -> onnx.ModelProto:
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(at, "sparse_w_at"), [16, D])
        proto.graph.sparse_initializer.append(sparse)
        return proto

    return {"edit": edit}  # type: ignore[return-value]


@_case
def _unused_domains(d: Draft) -> Mapping[str, Any]:
    d.domains.update({"ai.onnx.ml": 3, "com.microsoft": 1, "ai.onnx.training": 1, "org.pytorch.aten": 1})
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _classical_scaler(d: Draft) -> Mapping[str, Any]:
    x = d.node("Scaler", d.floats("x", 16), domain="ai.onnx.ml", offset=[0.1] * 16, scale=[2.0] * 16)
    d.give(d.dense(d.dense(x, 16, D, "Relu"), D, C), "logits")
    return RIGHT


@_case
def _microsoft_fused(d: Draft) -> Mapping[str, Any]:
    x = d.floats("x", 10, D)
    y = d.node("FusedMatMul", x, d.weight(D, D), domain="com.microsoft", alpha=0.7, transB=1)
    y = d.node("BiasGelu", y, d.const(np.full(D, 0.1)), domain="com.microsoft")
    ones, zeros = d.const(np.ones(D)), d.const(np.zeros(D))
    y = d.node("SkipLayerNormalization", y, x, ones, zeros, domain="com.microsoft", epsilon=1e-5)
    d.give(d.dense(d.node("ReduceMean", d.dense(y, D, D, "Relu"), axes=[1], keepdims=0), D, C), "logits")
    return RIGHT


@_case
def _microsoft_attention(d: Draft) -> Mapping[str, Any]:
    x = d.floats("x", 10, D)
    y = d.node("Attention", x, d.weight(D, 3 * D), d.const(np.zeros(3 * D)), domain="com.microsoft", num_heads=4)
    d.give(d.dense(d.node("ReduceMean", d.dense(y, D, D, "Relu"), axes=[1], keepdims=0), D, C), "logits")
    return RIGHT


@_case
def _microsoft_fused_conv(d: Draft) -> Mapping[str, Any]:
    x = d.node("FusedConv", _image(d), d.weight(8, 3, 3, 3), domain="com.microsoft", activation="Relu", pads=[1] * 4)
    d.give(_classify(d, x, 8), "logits")
    return RIGHT


@_case
def _quantized_already(d: Draft) -> None:
    def qdq(x: str, scale: float) -> str:
        at = (d.const(scale), d.const(0, np.int8))
        return d.node("DequantizeLinear", d.node("QuantizeLinear", x, *at), *at)

    w = d.node("DequantizeLinear", d.const(d.rng.integers(-99, 99, (16, D)), np.int8), d.const(0.004))
    x = d.node("MatMul", qdq(d.floats("x", 16), 0.03), w)
    d.give(d.dense(qdq(d.node("Relu", x), 0.05), D, C), "logits")


@_case
def _weights_dequantized(d: Draft) -> None:
    """Weight-only INT8, as exporters of large models write it; the activations are float."""
    w = d.node("DequantizeLinear", d.const(d.rng.integers(-99, 99, (16, D)), np.int8), d.const(0.004))
    d.give(d.dense(d.node("Relu", d.node("MatMul", d.floats("x", 16), w)), D, C), "logits")


@_case
def _integer_matmul_already(d: Draft) -> None:
    q, scale, zero = d.node("DynamicQuantizeLinear", d.floats("x", 16), out=3)
    y = d.node("MatMulInteger", q, d.const(d.rng.integers(-99, 99, (16, D)), np.int8), zero)
    y = d.node("Mul", d.node("Cast", y, to=FLOAT), d.node("Mul", scale, d.const(0.004)))
    d.give(d.dense(d.node("Relu", y), D, C), "logits")


# --- layers ---------------------------------------------------------------------------------------------------


@_case
def _no_weights(d: Draft) -> None:
    x = d.floats("x", 16)
    d.give(d.node("Softmax", d.node("Mul", x, x), axis=1), "probabilities")


@_case
def _one_layer(d: Draft) -> Mapping[str, Any]:
    d.give(d.node("MatMul", d.floats("x", 16), d.weight(16, C)), "logits")
    return RIGHT


@_case
def _tied_layers(d: Draft) -> Mapping[str, Any]:
    w, x = d.weight(D, D), d.floats("x", D)
    for _ in range(3):
        x = d.node("Tanh", d.node("MatMul", x, w))
    d.give(d.node("MatMul", x, d.weight(D, C)), "logits")
    return RIGHT


@_case
def _tied_embedding(d: Draft) -> Mapping[str, Any]:
    table = d.weight(40, D)
    x = d.node("Gather", table, d.feed("ids", d.rng.integers(0, 40, (N, 8))))
    x = d.dense(x, D, D, "Tanh")
    d.give(d.node("MatMul", x, d.node("Transpose", table, perm=[1, 0])), "logits")
    return RIGHT


@_case
def _conv3d(d: Draft) -> Mapping[str, Any]:
    d.give(_classify(d, d.floats("volume", 1, 8, 8, 8), 1, (3, 3, 3)), "logits")
    return RIGHT


@_case
def _conv_transpose(d: Draft) -> Mapping[str, Any]:
    x = d.node("Relu", d.node("Conv", _image(d), d.weight(8, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    y = d.node("ConvTranspose", x, d.const(d.rng.normal(0, 0.2, (8, 1, 2, 2))), strides=[2, 2])
    d.give(d.node("Sigmoid", y), "mask")
    return RIGHT


@_case
def _depthwise(d: Draft) -> Mapping[str, Any]:
    x = d.node("Conv", _image(d), d.weight(8, 3, 3, 3), pads=[1] * 4)
    x = d.node("Clip", d.node("Conv", x, d.weight(8, 1, 3, 3), group=8, pads=[1] * 4), d.const(0.0), d.const(6.0))
    d.give(_classify(d, x, 8, (1, 1)), "logits")
    return RIGHT


@_case
def _grouped_and_dilated(d: Draft) -> Mapping[str, Any]:
    x = d.node("Relu", d.node("Conv", _image(d), d.weight(8, 3, 3, 3), pads=[2] * 4, dilations=[2, 2]))
    x = d.node("Conv", x, d.weight(8, 4, 3, 3), group=2, auto_pad="SAME_UPPER")
    d.give(_classify(d, x, 8), "logits")
    return RIGHT


@_case
def _norms(d: Draft) -> Mapping[str, Any]:
    ones, zeros = d.const(np.ones(8)), d.const(np.zeros(8))
    x = d.node("Conv", _image(d), d.weight(8, 3, 3, 3), pads=[1] * 4)
    x = d.node("InstanceNormalization", x, ones, zeros)
    x = d.node("BatchNormalization", x, ones, zeros, zeros, ones)
    y = d.node("Flatten", d.node("GlobalAveragePool", d.node("Relu", d.node("Conv", x, d.weight(8, 8, 3, 3)))))
    d.give(d.dense(d.node("LayerNormalization", y, ones, zeros), 8, C), "logits")
    return RIGHT


@_case
def _group_norm(d: Draft) -> Mapping[str, Any]:
    d.opset, d.ir = 21, 10
    x = d.node("Conv", _image(d), d.weight(8, 3, 3, 3), pads=[1] * 4)
    x = d.node("GroupNormalization", x, d.const(np.ones(8)), d.const(np.zeros(8)), num_groups=2)
    d.give(_classify(d, x, 8), "logits")
    return RIGHT


@_case
def _einsum(d: Draft) -> Mapping[str, Any]:
    x = d.node("Einsum", d.floats("x", 10, D), d.weight(D, D), equation="bij,jk->bik")
    d.give(d.dense(d.node("ReduceMean", d.node("Relu", x), axes=[1], keepdims=0), D, C), "logits")
    return RIGHT


@_case
def _einsum_alone(d: Draft) -> None:
    d.give(d.node("Einsum", d.floats("x", 10, D), d.weight(D, C), equation="bij,jk->bik"), "logits")


@_case
def _gemm_forms(d: Draft) -> Mapping[str, Any]:
    x = d.node("Gemm", d.floats("x", 16), d.weight(D, 16), d.const(np.full(D, 0.1)), transB=1, alpha=0.5, beta=2.0)
    x = d.node("Gemm", d.node("Relu", x), d.weight(D, D))
    d.give(d.node("Gemm", d.node("Relu", x), d.weight(D, C), d.const([[0.1]])), "logits")
    return RIGHT


@_case
def _weights_reshaped(d: Draft) -> Mapping[str, Any]:
    whole = d.weight(16, 2 * D)
    first, second = d.node("Split", whole, d.const([D, D], np.int64), out=2, axis=1)
    x = d.floats("x", 16)
    y = d.node("Add", d.node("MatMul", x, first), d.node("Tanh", d.node("MatMul", x, second)))
    turned = d.node("Transpose", d.weight(C, D), perm=[1, 0])
    d.give(d.node("MatMul", d.node("Relu", y), turned), "logits")
    return RIGHT


@_case
def _bidirectional(d: Draft) -> Mapping[str, Any]:
    x = d.node("Transpose", d.floats("x", 8, 16), perm=[1, 0, 2])
    w, r = d.const(d.rng.normal(0, 0.2, (2, 3 * D, 16))), d.const(d.rng.normal(0, 0.2, (2, 3 * D, D)))
    y = d.node("GRU", x, w, r, out=2, hidden_size=D, direction="bidirectional")[1]
    y = d.node("Reshape", d.node("Transpose", y, perm=[1, 0, 2]), d.const([-1, 2 * D], np.int64))
    d.give(d.dense(y, 2 * D, C), "logits")
    return RIGHT


@_case
def _suppression_inside(d: Draft) -> Mapping[str, Any]:
    x = d.dense(d.floats("x", 16), 16, 64, "Relu")
    boxes = d.node("Reshape", d.node("Sigmoid", d.dense(x, 64, 80)), d.const([0, 20, 4], np.int64))
    scores = d.node("Reshape", d.node("Sigmoid", d.dense(x, 64, 20)), d.const([0, 1, 20], np.int64))
    at = (d.const(9, np.int64), d.const(0.5), d.const(0.4))
    d.give(d.node("NonMaxSuppression", boxes, scores, *at), "selected", INT64)
    return {"answers": {"selected": "ids"}}


@_case
def _top_k(d: Draft) -> Mapping[str, Any]:
    y = d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, 12)
    values, indices = d.node("TopK", y, d.const([3], np.int64), out=2)
    d.give(values, "best")
    d.give(indices, "places", INT64)
    return {**RIGHT, "answers": {"best": "values", "places": "ids"}}


@_case
def _scan_of_dense(d: Draft) -> Mapping[str, Any]:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "u"], ["hu"], "inner"),
            helper.make_node("Add", ["hu", "row"], ["sum"], "sum"),
            helper.make_node("Tanh", ["sum"], ["h_out"], "bound"),
            helper.make_node("Identity", ["h_out"], ["row_out"], "copy"),
        ],
        "step",
        [helper.make_tensor_value_info(n, FLOAT, ["batch", D]) for n in ("h", "row")],
        [helper.make_tensor_value_info(n, FLOAT, ["batch", D]) for n in ("h_out", "row_out")],
        [numpy_helper.from_array(d.rng.normal(0, 0.2, (D, D)).astype(np.float32), "u")],
    )
    x = d.node("Transpose", d.dense(d.floats("x", 8, D), D, D), perm=[1, 0, 2])
    first = d.node("Mul", d.node("ReduceMean", x, axes=[0], keepdims=0), d.const(0.0))
    last = d.node("Scan", first, x, out=2, body=body, num_scan_inputs=1)[0]
    d.give(d.dense(last, D, C), "logits")
    return RIGHT


@_case
def _sequence_inside(d: Draft) -> Mapping[str, Any]:
    parts = d.node("SplitToSequence", d.dense(d.floats("x", 16), 16, D, "Relu"), d.const(8, np.int64), axis=1)
    x = d.node("Add", *(d.node("SequenceAt", parts, d.const(i, np.int64)) for i in (0, 2)))
    d.give(d.dense(x, 8, C), "logits")
    return RIGHT


# --- values ---------------------------------------------------------------------------------------------------


@_case
def _nan_output(d: Draft) -> None:
    d.give(d.node("Log", d.dense(d.floats("x", 16), 16, C)), "logits")


@_case
def _infinite_mask(d: Draft) -> Mapping[str, Any]:
    """Attention masked by -inf, as decoders are."""
    x = d.floats("x", 6, D)
    q, k, v = (d.dense(x, D, D) for _ in range(3))
    mask = d.const(np.triu(np.full((6, 6), -np.inf), 1))
    scores = d.node("Add", d.node("MatMul", q, d.node("Transpose", k, perm=[0, 2, 1])), mask)
    d.give(d.dense(d.node("MatMul", d.node("Softmax", scores, axis=2), v), D, C), "logits")
    return RIGHT


@_case
def _always_the_same(d: Draft) -> None:
    d.give(d.node("MatMul", d.floats("x", 16), d.const(np.zeros((16, C)))), "logits")


@_case
def _huge_values(d: Draft) -> None:
    x = d.node("MatMul", d.floats("x", 16), d.const(d.rng.normal(size=(16, D)) * 1e25))
    d.give(d.dense(d.node("Tanh", x), D, C), "logits")


@_case
def _tiny_values(d: Draft) -> None:
    x = d.node("MatMul", d.floats("x", 16), d.const(d.rng.normal(size=(16, C)) * 1e-30))
    d.give(x, "logits")


@_case
def _opset_6(d: Draft) -> None:
    d.opset, d.ir = 6, 3
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")


@_case
def _opset_23(d: Draft) -> None:
    d.opset, d.ir = 23, 11
    x = d.node("RMSNormalization", d.floats("x", D), d.const(np.ones(D)))
    d.give(d.dense(d.dense(x, D, D, "Relu"), D, C), "logits")


@_case
def _opset_26(d: Draft) -> None:
    d.opset, d.ir = 26, 13
    d.give(d.dense(d.dense(d.floats("x", 16), 16, D, "Relu"), D, C), "logits")
