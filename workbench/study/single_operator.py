"""One operator of a compiled model by itself: is it at fault, or what it was given?

The operator's nodes are cut out of the float model and run on the very inputs that the device had: in float32 here, in
half precision on the device, and as compiled, which is what the device gave within the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import names_read
from workbench.graph.read import constants, load_graph, read_model
from workbench.study.comparison import Side, reference_values
from workbench.study.device_findings import Alone, Fault, SingleOperator
from workbench.study.device_side import DeviceSide, compared, operator_named
from workbench.study.differences import differences_of
from workbench.study.first_bad import bad_tensor, write_values
from workbench.study.limits import HALF, INT8, Limits
from workbench.targets import REFERENCE, open_target
from workbench.targets.base import Array, Feeds
from workbench.targets.inside import DeviceCall, DeviceOperator, LooksInside
from workbench.values.errors import CandidateError, ConfigError, ToolchainError

FLOAT32, HALF_ALONE, COMPILED = "float32", "float16", "as compiled"
_FOLLOWED = frozenset(
    {
        *("Cast", "Expand", "Flatten", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze"),
        *("Concat", "Gather", "ConstantOfShape", "Range", "Equal", "Where"),
    }
)
"""What moves values or makes shapes: it is taken along where the device has no tensor of its own for its result."""


def run_alone(name: str, a: Side, device: DeviceSide, looker: LooksInside, limits: Limits, to: Path) -> SingleOperator:
    """Run the operator of that name, or the one that covers that node, by itself; its values go into `to`.

    Raises:
        ConfigError: no operator covers it, or the dump lacks its inputs.
    """
    call = device.recording.calls[0]
    operator = operator_named(call, name)
    tensor = bad_tensor(operator, call)
    if not tensor or not operator.float_nodes:
        raise ConfigError(
            f"{operator.name} ({operator.op_type}) covers no node of the float model, so that there is nothing to "
            "compare it with.",
            key="--single-op",
        )
    given = _given(operator, call)
    part, feeds = _cut_out(load_graph(read_model(a.path)), operator, tensor, given)
    to.mkdir(parents=True, exist_ok=True)
    file = to / "operator.onnx"
    onnx.save(part, file)
    exact = open_target(REFERENCE).probe(file, []).run(feeds)[tensor]
    compiled = compared(call)[tensor][1].floats()
    assert compiled is not None  # `bad_tensor` takes those that stand for floats
    whole = reference_values(a, device, 0, [tensor])[tensor]
    bound = _bound(limits, operator)
    runs = [Alone(about=FLOAT32, relative_error=0.0), _in_half(looker, file, feeds, tensor, exact, to / "half")]
    runs.append(_alone(COMPILED, exact, compiled))
    inputs_error = differences_of(whole, exact).relative_error()
    own = runs[-1].relative_error or 0.0
    files = write_values(operator, to, {f"float32.{tensor}": exact, f"model.{tensor}": whole})
    return SingleOperator(
        operator=operator.name,
        op_type=operator.op_type,
        nodes=operator.float_nodes,
        types=operator.types,
        tensor=tensor,
        runs=tuple(runs),
        inputs_error=inputs_error,
        whole_error=differences_of(whole, compiled).relative_error(),
        limit=bound,
        fault=_FAULTS[own >= bound, inputs_error >= bound],
        files=files,
    )


_FAULTS: Mapping[tuple[bool, bool], Fault] = {
    (True, False): "operator",
    (False, True): "inputs",
    (True, True): "both",
    (False, False): "neither",
}


def _bound(limits: Limits, operator: DeviceOperator) -> float:
    """The relative error that counts as none for the types it computes in, where the limits name none."""
    if limits.error is not None:
        return limits.error
    return (INT8 if operator.whole else HALF).error or 0.0


def _in_half(looker: LooksInside, part: Path, feeds: Feeds, tensor: str, exact: Array, to: Path) -> Alone:
    to.mkdir(parents=True, exist_ok=True)
    try:
        found = looker.run_in_half(part, feeds, to)
    except (ConfigError, ToolchainError, CandidateError) as error:
        return Alone(about=HALF_ALONE, failed=str(error))
    return _alone(HALF_ALONE, exact, found[tensor])


def _alone(about: str, exact: Array, values: Array) -> Alone:
    """Where float32 has no number either, the inputs are to blame, and nothing is held against the operator."""
    known = np.isfinite(exact)
    found = differences_of(np.where(known, exact, 0), np.where(known, values.reshape(exact.shape), 0))
    return Alone(about=about, relative_error=found.relative_error(), not_finite=found.not_finite)


def _given(operator: DeviceOperator, call: DeviceCall) -> dict[str, Array]:
    """Tensor of the float model → the values that the device had for it, as floats."""
    found = {name: tensor.load() for name, tensor in call.fed.items()}
    for tensor in operator.inputs:
        values = tensor.floats() if tensor.tensor and tensor.tensor not in found else None
        if values is None and tensor.tensor and tensor.tensor not in found and tensor.dtype not in ("int8", "int32"):
            values = tensor.load()
        if values is not None:
            found[tensor.tensor] = values
    return found


def _cut_out(
    proto: ModelProto, operator: DeviceOperator, output: str, given: Mapping[str, Array]
) -> tuple[ModelProto, Feeds]:
    """A model of the operator's nodes alone, its inputs in fixed shapes, and what to feed it."""
    nodes = {node.name: node for node in proto.graph.node}
    makers = {name: node for node in proto.graph.node for name in node.output}
    known = constants(proto)
    types = {v.name: v.type.tensor_type for v in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)}
    chosen = {name: nodes[name] for name in operator.float_nodes}
    fed: dict[str, Array] = {}
    waiting: list[NodeProto] = list(chosen.values())
    while waiting:
        node = waiting.pop()
        for name in dict.fromkeys(names_read(node)):
            maker = makers.get(name)
            if not name or name in known or name in fed or (maker is not None and maker.name in chosen):
                continue
            if name in given:
                fed[name] = given[name]
            elif maker is not None and maker.op_type in _FOLLOWED:
                chosen[maker.name] = maker
                waiting.append(maker)
            else:
                raise ConfigError(
                    f"{operator.name} reads {name!r}, and the device's values of it are not known.",
                    key="--single-op",
                    hint="Dump inputs too, and put the compiler's JSON of the file beside the dump as MODEL.json.",
                )
    order = [node for node in proto.graph.node if node.name in chosen and node.op_type != "Constant"]
    feeds = {name: _typed(values, types.get(name)) for name, values in fed.items()}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    graph = helper.make_graph(
        order,
        "operator",
        inputs,
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, _dims(types.get(output)))],
        [tensor_of(array_of(known[name]), name) for name in _read(order) if name in known],
    )
    made = helper.make_model(graph, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)
    onnx.shape_inference.infer_shapes(made)
    return made, feeds


def _typed(values: Array, described: object) -> Array:
    """In the type that the float model has there, and in its number of dimensions."""
    element = getattr(described, "elem_type", 0)
    return values.astype(helper.tensor_dtype_to_np_dtype(element)) if element else values


def _dims(described: object) -> list[int | str] | None:
    """None where the rank is not known."""
    shape = getattr(described, "shape", None)
    if shape is None or not getattr(described, "HasField", lambda _: False)("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else f"d{axis}" for axis, dim in enumerate(shape.dim)]


def _read(nodes: Sequence[NodeProto]) -> list[str]:
    return list(dict.fromkeys(name for node in nodes for name in names_read(node)))
