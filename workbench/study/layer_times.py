"""What layers compute and how long their kernels take on this machine, one layer at a time, in float and in INT8."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper

from workbench.graph.layers import Layer
from workbench.graph.read import constants
from workbench.inputs.experiment import Experiment
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import Feeds
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.sessions import open_session, session_on

_ROUNDS = 15
_ROUND_S = 0.004
_CALL_S = 1.0
Values = Mapping[str, npt.NDArray[Any]]


def values_of(experiment: Experiment, layers: Sequence[Layer], feeds: Feeds) -> Values:
    """Every tensor that a layer reads or gives, of the float model on these feeds."""
    names = sorted({name for layer in layers for name in (layer.activation, layer.second, layer.output) if name})
    wanted = [name for name in names if name not in feeds]
    session = open_session(experiment.model, wanted)
    return dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True)) | dict(feeds)


def macs_of(layers: Sequence[Layer], values: Values) -> dict[str, int]:
    """Layer → multiply-accumulates of these feeds."""
    return {layer.name: _macs(layer, values[layer.activation].shape, values[layer.output].size) for layer in layers}


def host_times(
    experiment: Experiment,
    proto: onnx.ModelProto,
    layers: Sequence[Layer],
    record: QuantizationRecord,
    feeds: Feeds,
    values: Values,
) -> tuple[dict[str, tuple[float, float]], float]:
    """Layer of the record → (float, INT8) microseconds; and the float model's call. One thread, ONNX Runtime."""
    plain = open_session(experiment.model, [])
    call_us = _fastest_us(lambda: plain.run(None, dict(feeds)))
    nodes = {node.name: node for node in proto.graph.node}
    known = constants(proto)
    records = {layer.layer: layer for layer in record.layers}
    times: dict[str, tuple[float, float]] = {}
    cache: dict[tuple[object, ...], tuple[float, float]] = {}
    for layer in layers:
        if layer.name not in records:
            continue
        inputs = {name: values[name] for name in (layer.activation, layer.second) if name}
        key = (layer.op_type, layer.weight_shape, layer.transposed, layer.groups, *(v.shape for v in inputs.values()))
        if key not in cache:
            single = _alone(proto, nodes[layer.name], known, inputs)
            only = replace(record, layers=(records[layer.name],), float_layers=())
            quantized = lower_static(single, only)
            cache[key] = _pair_us(single, quantized, inputs)
        times[layer.name] = cache[key]
    return times, call_us


def _macs(layer: Layer, activation: tuple[int, ...], outputs: int) -> int:
    if layer.weight is None:
        return outputs * (activation[-1] if layer.second is not None else 1)
    if layer.op_type == "ConvTranspose":  # every input value meets Cout / groups kernels
        return math.prod(activation) * math.prod(layer.weight_shape[1:])
    assert layer.output_axis is not None
    return outputs * math.prod(layer.weight_shape) // layer.weight_shape[layer.output_axis]


def _alone(
    proto: onnx.ModelProto,
    node: onnx.NodeProto,
    known: Mapping[str, onnx.TensorProto],
    inputs: Mapping[str, npt.NDArray[Any]],
) -> onnx.ModelProto:
    """A model of this one node, with a symbolic leading axis as the real one has."""
    tensors = []
    for name in node.input:
        if name in known:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(known[name])
            tensor.name = name
            tensors.append(tensor)
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", *array.shape[1:]])
        for name, array in inputs.items()
    ]
    output = helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", values, [output], tensors)
    return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)


def _pair_us(
    single: onnx.ModelProto, quantized: onnx.ModelProto, inputs: Mapping[str, npt.NDArray[Any]]
) -> tuple[float, float]:
    """Microseconds of both: the fastest of some rounds in turns, since other work only ever adds time."""
    sessions = [_session(model) for model in (single, quantized)]
    calls = [lambda s=session: s.run(None, dict(inputs)) for session in sessions]
    per_round = [_repeats(call) for call in calls]
    rounds: list[list[float]] = [[], []]
    for turn in range(_ROUNDS):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            began = time.perf_counter()
            for _ in range(per_round[which]):
                calls[which]()
            rounds[which].append((time.perf_counter() - began) / per_round[which] * 1e6)
    return min(rounds[0]), min(rounds[1])


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # MatMulAddFusion would turn INT8 products back into float ones
    return session_on(model, options, without=["MatMulAddFusion"])


def _repeats(call: Callable[[], object]) -> int:
    call()
    began = time.perf_counter()
    call()
    return max(1, int(_ROUND_S / max(time.perf_counter() - began, 1e-7)))


def _fastest_us(call: Callable[[], object]) -> float:
    """For a second at least: a call of milliseconds is interrupted more often than one kernel."""
    call()
    found: list[float] = []
    ends = time.perf_counter() + _CALL_S
    while len(found) < _ROUNDS or time.perf_counter() < ends:
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1e6)
    return min(found)
