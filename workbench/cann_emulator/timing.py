"""How long a chip takes for an offline model, kernel by kernel: what each asks for, at the rates of
`workbench.values.modelled_times.kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import onnx

from workbench.cann_emulator.om import Kernel, OfflineModel, Tensor
from workbench.graph.read import constants
from workbench.values.modelled_times.device_data import DeviceData
from workbench.values.modelled_times.kernels import (
    KernelWork,
    amounts,
    elements_of,
    kernel_cost,
    operator_work,
    size_bytes,
    times_us,
)
from workbench.values.modelled_times.statement import CallCosts, Work, summed

CopyKind = Literal["host_to_device", "device_to_host", "device_to_device"]


class KernelTime(NamedTuple):
    """One launch."""

    kernel: Kernel
    duration_us: float  # launch_us, and compute_us and memory_us as they overlap
    compute_us: float
    memory_us: float
    launch_us: float


def kernel_times(model: OfflineModel, gear: int, device: DeviceData) -> tuple[KernelTime, ...]:
    """The kernels of one gear in execution order; those that cost nothing (views) are left out."""
    works = kernel_works(model, gear, device)
    device = _with_cores(device, model)
    return tuple(timed(kernel, work, device) for kernel, work in zip(launched(model, gear), works, strict=True))


def stream_us(model: OfflineModel, gear: int, device: DeviceData) -> float:
    """What the kernels of one execution take on the stream, back to back."""
    chosen = device.gear_us if model.gear_kind else 0.0
    return sum(time.duration_us for time in kernel_times(model, gear, device)) + chosen


def execute_us(model: OfflineModel, gear: int, device: DeviceData) -> float:
    """One execution as its caller waits for it: the host's launch, then the stream; copies excluded."""
    return device.execute_launch_us + stream_us(model, gear, device)


def copy_us(size_bytes: int, kind: CopyKind, device: DeviceData) -> float:
    """One synchronous copy."""
    gb_per_s: float = getattr(device, f"{kind}_gb_per_s")
    return device.copy_latency_us + size_bytes / (gb_per_s * 1e3)


def execution_costs(
    model: OfflineModel, gear: int, device: DeviceData, *, copied_in: Sequence[int], copied_out: Sequence[int]
) -> CallCosts:
    """One execution as its caller waits for it, with the copies in front of it and behind it, by parts of one error.

    Copies are MB and how often, what AI CPUs handle is millions of numbers.

    Args:
        copied_in, copied_out: bytes of each copy.
    """
    works = kernel_works(model, gear, device)
    device = _with_cores(device, model)
    costs = [kernel_cost(work, device) for work in works]
    for part in ("execute_launch", *(["gear"] if model.gear_kind else [])):
        costs.append(Work(count=1, amounts=((part, 1.0),)))
    for parameter, copies in (("to_device", copied_in), ("to_host", copied_out)):
        costs += [Work(count=1, amounts=amounts(copy_latency=1, **{parameter: size / 1e6})) for size in copies]
    return summed(costs)


def timed(kernel: Kernel, work: KernelWork, device: DeviceData) -> KernelTime:
    """A kernel's work at the device's rates."""
    start, compute, memory, rest = times_us(work, device)
    return KernelTime(kernel, start + rest, compute, memory, start)


def kernel_works(model: OfflineModel, gear: int, device: DeviceData) -> tuple[KernelWork, ...]:
    """What each kernel of `kernel_times` asks for."""
    graph = _graph_facts(model.graph)
    kernels = launched(model, gear)
    weights = {(t.name, t.dtype): size_bytes(t) for k in kernels for t in _reads(k, graph) if t.name in graph[0]}
    cached = model.options.get("buffer_optimize", "l2_optimize") == "l2_optimize"
    near = cached and sum(weights.values()) <= device.l2_mib * 2**20 * device.l2_share
    return tuple(_work(kernel, graph, device, cached=cached, weights_near=near) for kernel in kernels)


_SHAPING = ("axis", "axes", "perm", "reduction", "mode", "sampling_ratio")
_GraphFacts = tuple[frozenset[str], Mapping[str, onnx.NodeProto]]
"""Constants of a graph, and its nodes by name."""


@lru_cache(maxsize=1)  # it keeps the graph it was asked about last: a hundred megabytes or so
def _graph_facts(content: bytes) -> _GraphFacts:
    model = onnx.ModelProto()
    model.ParseFromString(content)
    return frozenset(constants(model)), {node.name: node for node in model.graph.node}


def launched(model: OfflineModel, gear: int) -> tuple[Kernel, ...]:
    """The kernels of a gear that the device is given to do, in order."""
    return tuple(kernel for kernel in model.gears[gear].kernels if kernel.core != "none")


def _with_cores(device: DeviceData, model: OfflineModel) -> DeviceData:
    """--aicore_num: '20|40' or '20'."""
    cube, _, vector = model.options.get("aicore_num", "").partition("|")
    if not cube:
        return device
    cores, vectors = int(cube), int(vector or 2 * int(cube))
    return replace(device, cube_cores=min(device.cube_cores, cores), vector_cores=min(device.vector_cores, vectors))


def _work(kernel: Kernel, graph: _GraphFacts, device: DeviceData, *, cached: bool, weights_near: bool) -> KernelWork:
    reads = _reads(kernel, graph)
    weights = sum(size_bytes(tensor) for tensor in reads if tensor.name in graph[0])
    activations = [tensor for tensor in reads if tensor.name not in graph[0]]
    far = (0 if weights_near else weights) + (0 if cached else sum(map(size_bytes, activations)))
    near = (weights if weights_near else 0) + (sum(map(size_bytes, activations)) if cached else 0)
    if kernel.core == "aicpu":
        elements = max((elements_of(tensor) for tensor in (*kernel.outputs, *activations)), default=0)
        written = sum(map(size_bytes, kernel.outputs))
        work = KernelWork(kind="aicpu", error_class="aicpu", aicpu_elements=elements, written=written)
        return replace(work, read_far=far, read_near=near)
    nodes = [graph[1][name] for name in kernel.nodes if name in graph[1]]
    work = operator_work(
        [kernel.op_type, *(node.op_type for node in nodes)],
        activations or reads,
        kernel.outputs,
        device,
        products=kernel.cube,
        dtype=kernel.dtype,
        attributes={
            one.name: onnx.helper.get_attribute_value(one)
            for node in nodes
            for one in node.attribute
            if one.name in _SHAPING
        },
    )
    if kernel.implementation.startswith(("high_precision", "enable_float_32")):
        work = replace(work, effort=device.high_precision_factor)
    elif kernel.implementation.startswith(("high_performance", "super_performance")):
        work = replace(work, effort=device.high_performance_factor)
    return replace(work, read_far=far, read_near=near)


def _reads(kernel: Kernel, graph: _GraphFacts) -> list[Tensor]:
    """What it reads in full: of a table that is looked up, only as much as comes out."""
    lookups = ("Gather", "GatherND", "GatherElements")
    if any(graph[1][node].op_type in lookups for node in kernel.nodes if node in graph[1]):
        tables = {tensor.name: tensor for tensor in kernel.inputs if len(tensor.shape) > 1}
        largest = max(tables.values(), key=size_bytes, default=None)
        return [t for t in kernel.inputs if t is not largest] + list(kernel.outputs[:1])
    return list(kernel.inputs)
