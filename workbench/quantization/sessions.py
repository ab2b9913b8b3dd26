"""Models in ONNX Runtime: the float model, whole or changed, with more of its tensors as outputs, its weights in their
files; and integer kernels with operands whose products no processor adds wrongly (`exact`).

A processor that saturates adds pairs of unsigned by signed products in 16 bits (`values/system/cpu`); every other pair
of types is exact, in each operator below (onnxruntime 1.31.1; `tests/quantization/test_exact_operands.py`). So a signed
second operand becomes unsigned: 128 more, its zero point too, the same numbers. `session.x64quantprecision` does so in
an optimizer that does not run where a compiled graph is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.shape_inference import infer_shapes

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, all_graphs, names_read, replace_nodes
from workbench.graph.read import constants, stored_graph
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.graph.write import MOST_BYTES, WEIGHTS_FOLDER, is_apart, runnable
from workbench.quantization.lowering.surgery import prune_constants
from workbench.values.errors import CalibrationError, MeasureError
from workbench.values.model import Model
from workbench.values.system.cpu import this_cpu


def open_session(
    model: Model, extra_outputs: Iterable[str], proto: onnx.ModelProto | None = None, *, threads: int = 1
) -> onnxruntime.InferenceSession:
    """The float model in ONNX Runtime, with more of its float32 tensors as outputs.

    Args:
        proto: a graph with the model's inputs and outputs to run in its place, weights included.
        threads: of one run; they do not spin while they wait.

    Raises:
        CalibrationError: the runtime refuses the model.
        ConfigError: its file is not what it was.
    """
    options = _options()
    if threads > 1:
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    more = onnx.ModelProto()
    known = {spec.name for spec in model.outputs}
    names = [name for name in extra_outputs if name not in known]
    more.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    try:
        # Serialized protobuf messages merge when they are joined; the caller's graph is not changed.
        return session_on(stored_graph(model) if proto is None else proto, options, more=more.SerializeToString())
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"ONNX Runtime refuses {model.path.name}: {error}") from error


def session_on(
    proto: onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    *,
    more: bytes = b"",
    without: Sequence[str] = (),
) -> onnxruntime.InferenceSession:
    """A session on a graph, which may refer to weights apart; the runtime maps those from their files.

    Its 8-bit products are exact: where this processor's would not be, other operands are used (`exact`).

    Args:
        more: a serialized model that is merged with the graph.
        without: names of optimizers that stay off.

    Raises:
        CalibrationError: larger than a protobuf may be, with all its weights in memory.
        Exception: one of `RUNTIME_ERRORS` where the runtime refuses it.
    """
    options = _options() if options is None else options
    given: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": list(without) or None}
    proto = exact(proto) if this_cpu().saturates else proto
    if not is_apart(proto):
        try:
            payload = proto.SerializeToString()  # asking for its size first would serialize it once more
        except EncodeError as error:
            raise CalibrationError(
                f"the model has more than the {MOST_BYTES} bytes of constants in its nodes that can be run. "
                "Export it with its weights as initializers."
            ) from error
        return onnxruntime.InferenceSession(payload + more, options, **given)
    with runnable(proto) as (payload, folder):
        options.add_session_config_entry(WEIGHTS_FOLDER, str(folder))
        return onnxruntime.InferenceSession(payload + more, options, **given)


def named_outputs(
    session: onnxruntime.InferenceSession, names: Sequence[str], failed: str
) -> Callable[[Mapping[str, npt.NDArray[Any]]], dict[str, npt.NDArray[Any]]]:
    """What a session gives of these outputs for its feeds, by name. Raises MeasureError, which begins with `failed`,
    where the runtime refuses the feeds or fails."""

    def call(feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        try:
            values = session.run(names, dict(feeds))
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"{failed}: {first_line(error)}") from error
        return dict(zip(names, values, strict=True))

    return call


def first_line(error: Exception) -> str:
    """What a runtime says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


# --- exact sums of 8-bit products ------------------------------------------------------------------------------------


_OPERANDS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "ConvInteger": ((1, 3, 0, 2),),  # multiplies by its weights from the left
    "DynamicQuantizeLSTM": ((0, 0, 1, 9), (0, 0, 2, 11)),
    "DynamicQuantizeMatMul": ((0, 0, 1, 3),),
    "MatMulInteger": ((0, 2, 1, 3),),
    "MatMulIntegerToFloat": ((0, 4, 1, 5),),
    "QAttention": ((0, 6, 1, 7),),
    **dict.fromkeys(("QGemm", "QLinearConv", "QLinearMatMul"), ((0, 2, 3, 5),)),
}
"""Operator → positions of (first operand, its zero point, second operand, its zero point) among its inputs."""


def exact(model: ModelProto) -> ModelProto:
    """The model with an unsigned second operand wherever the first is not signed; itself where there is none. Pure."""
    if not any(node.op_type in _OPERANDS for graph in all_graphs(model.graph) for node in graph.node):
        return model
    result = infer_shapes(model)  # a copy, with the types of what operators give
    names, outer = Names(result.graph), constants(result)
    inner_first = [*all_graphs(result.graph)][::-1]
    if not any([_Rewriter(graph, result.graph, names, outer).rewrite() for graph in inner_first]):
        return model
    del result.graph.value_info[:]
    prune_constants(result.graph)
    return result


class _Rewriter:
    """Of a graph or body; constants go into the outermost graph."""

    def __init__(self, graph: GraphProto, outermost: GraphProto, names: Names, outer: dict[str, TensorProto]) -> None:
        self._graph, self._outermost, self._names = graph, outermost, names
        self._known = outer if graph is outermost else {**outer, **constants(ModelProto(graph=graph))}
        self._makers = {name: node for node in graph.node for name in node.output}
        values = (*outermost.input, *outermost.value_info, *graph.input, *graph.value_info)
        self._types = {value.name: value.type.tensor_type.elem_type for value in values}
        self._types |= {name: tensor.data_type for name, tensor in self._known.items()}
        self._unsigned: dict[str, str] = {}
        self._nodes: list[NodeProto] = []

    def rewrite(self) -> bool:
        """Whether there was anything to do."""
        for node in self._graph.node:
            for first, first_zero, second, second_zero in _OPERANDS.get(node.op_type, ()):
                inputs = [*node.input, *[""] * (second_zero + 1 - len(node.input))]
                if self._signed(inputs, second, second_zero) and not self._signed(inputs, first, first_zero):
                    inputs[second] = self._plus_128(inputs[second])
                    inputs[second_zero] = self._plus_128(inputs[second_zero])
                    node.input[:] = inputs
            self._nodes.append(node)
        read = {name for node in self._nodes for name in names_read(node)}.union(o.name for o in self._graph.output)
        gone = self._unsigned.keys() - read
        replace_nodes(self._graph, [node for node in self._nodes if node.output[0] not in gone])
        return bool(self._unsigned)

    def _signed(self, inputs: Sequence[str], operand: int, zero_point: int) -> bool:
        """By the zero point or, where there is none, by the operand itself."""
        return TensorProto.INT8 in [self._types.get(inputs[i]) for i in (operand, zero_point) if i < len(inputs)]

    def _plus_128(self, name: str) -> str:
        """The unsigned form of a tensor; without a name, of a zero point that is left out."""
        if name not in self._unsigned:
            maker = self._makers.get(name, NodeProto())
            zero = self._known.get(([*maker.input, "", "", ""])[2])
            if name in self._known or not name:
                values = array_of(self._known[name]) if name else np.asarray(0, np.int8)
                self._unsigned[name] = self._constant(name, values.view(np.uint8) ^ np.uint8(128))
            elif maker.op_type == "QuantizeLinear" and zero is not None and not zero.dims:
                self._unsigned[name] = self._add(
                    maker.op_type, [*maker.input[:2], self._plus_128(maker.input[2])], name
                )
            else:
                one = self._constant("one", np.asarray(1, np.float32))
                floats = self._add("DequantizeLinear", [name, one], f"{name}_floats")
                self._unsigned[name] = self._add("QuantizeLinear", [floats, one, self._plus_128("")], name)
        return self._unsigned[name]

    def _constant(self, wish: str, values: npt.NDArray[np.generic]) -> str:
        self._outermost.initializer.append(tensor_of(values, self._names.fresh(f"{wish}_unsigned")))
        return str(self._outermost.initializer[-1].name)

    def _add(self, op_type: str, inputs: list[str], wish: str) -> str:
        name = self._names.fresh(f"{wish}_unsigned")
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=name))
        return name
