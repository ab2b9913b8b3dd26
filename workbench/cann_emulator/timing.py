"""How long 910B3 takes for an offline model: an analytical model, kernel by kernel. No kernel was ever timed for it.

    kernel  = launch + max(cube, vector, memory)
    cube    = rounds of tiles over the cube cores × the longer of multiply-adds and loads of a tile, each / efficiency
    vector  = instructions per element × elements / (lanes × vector cores × clock) / efficiency
    memory  = bytes read and written / bandwidth of L2, or of HBM for what does not fit / efficiency

Sides of a matrix product are padded to what the cube multiplies at once. Tiles are chosen as the quickest of a few, as
a compiler's tiling would. The numbers are in ascend910b3.yaml; results are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod
from typing import Literal

import onnx

from workbench.cann_emulator.device_data import DeviceData
from workbench.cann_emulator.om import ITEM_BYTES, Core, Dtype, Kernel, OfflineModel, Tensor
from workbench.graph.read import constants

CopyKind = Literal["host_to_host", "host_to_device", "device_to_host", "device_to_device"]

_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (64, 32), (32, 32), (16, 16))
"""Rows and columns of the result that a core computes at a time: L0C holds 256 × 128 float32 (atc.md §7.2)."""
_LOOKUPS = ("Gather", "GatherND", "GatherElements")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One launch.

    Attributes:
        duration_us: launch_us and the longer of compute_us and memory_us.
    """

    name: str
    op_type: str
    core: Core
    duration_us: float
    compute_us: float
    memory_us: float
    launch_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What a kernel asks of the device, before any efficiency.

    Attributes:
        tilings: of each matrix product, the ways to cut it: (multiply-adds at the cube's peak, loads at L2's rate).
        cube_dtype: whose efficiency applies.
        vector_us: at full peak.
        l2_us, hbm_us: of the bytes that it moves, at full peaks.
    """

    tilings: tuple[tuple[tuple[float, float], ...], ...] = ()
    cube_dtype: Dtype = "float16"
    vector_us: float = 0.0
    l2_us: float = 0.0
    hbm_us: float = 0.0


def kernel_times(model: OfflineModel, gear: int, device: DeviceData) -> tuple[KernelTime, ...]:
    """The kernels of one gear in execution order; those that cost nothing (views) are left out."""
    works = kernel_works(model, gear, device)
    dynamic = model.gear_kind == "range"
    return tuple(
        timed(kernel, work, device, dynamic=dynamic) for kernel, work in zip(launched(model, gear), works, strict=True)
    )


def stream_us(model: OfflineModel, gear: int, device: DeviceData) -> float:
    """What the kernels of one execution take on the stream, back to back."""
    chosen = device.gear_us if model.gear_kind and model.gear_kind != "range" else 0.0
    return sum(time.duration_us for time in kernel_times(model, gear, device)) + chosen


def execute_us(model: OfflineModel, gear: int, device: DeviceData) -> float:
    """One execution as its caller waits for it: the host's launch, then the stream; copies excluded."""
    return device.execute_launch_us + stream_us(model, gear, device)


def copy_us(size_bytes: int, kind: CopyKind, device: DeviceData) -> float:
    """One synchronous copy."""
    rates = {
        "host_to_host": device.host_to_device_gb_per_s,
        "host_to_device": device.host_to_device_gb_per_s,
        "device_to_host": device.device_to_host_gb_per_s,
        "device_to_device": device.device_to_device_gb_per_s,
    }
    return device.copy_latency_us + size_bytes / (rates[kind] * 1e3)


def timed(kernel: Kernel, work: KernelWork, device: DeviceData, *, dynamic: bool = False) -> KernelTime:
    """A kernel's work at the device's efficiencies."""
    if kernel.core == "aicpu":
        launch, compute = device.aicpu_launch_us, work.vector_us
    else:
        launch = device.dynamic_launch_us if dynamic else device.kernel_launch_us
        efficiency: float = getattr(device, f"cube_efficiency_{work.cube_dtype}")
        cube = sum(
            min(max(adds / efficiency, loads / device.memory_efficiency) for adds, loads in tilings)
            for tilings in work.tilings
        )
        compute = max(cube, work.vector_us / device.vector_efficiency)
    memory = (work.l2_us + work.hbm_us) / device.memory_efficiency
    return KernelTime(
        name=kernel.name,
        op_type=kernel.op_type,
        core=kernel.core,
        duration_us=launch + max(compute, memory),
        compute_us=compute,
        memory_us=memory,
        launch_us=launch,
    )


def kernel_works(model: OfflineModel, gear: int, device: DeviceData) -> tuple[KernelWork, ...]:
    """What each kernel of `kernel_times` asks for."""
    device = _with_cores(device, model.options.get("aicore_num", ""))
    graph = _graph_facts(model.graph)
    kernels = launched(model, gear)
    weights = {(t.name, t.dtype): _size(t) for k in kernels for t in _reads(k, graph) if t.name in graph.constants}
    share = device.l2_mib * 2**20 * device.l2_share
    resident = 0.0 if model.options.get("buffer_optimize", "l2_optimize") != "l2_optimize" else share
    return tuple(
        _work(kernel, graph, device, resident=resident, weights_in_l2=sum(weights.values()) <= share)
        for kernel in kernels
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphFacts:
    constants: frozenset[str]
    operators: Mapping[str, str]


@lru_cache(maxsize=1)  # it keeps the graph it was asked about last: a hundred megabytes or so
def _graph_facts(content: bytes) -> _GraphFacts:
    model = onnx.ModelProto()
    model.ParseFromString(content)
    return _GraphFacts(
        constants=frozenset(constants(model)), operators={node.name: node.op_type for node in model.graph.node}
    )


def launched(model: OfflineModel, gear: int) -> tuple[Kernel, ...]:
    """The kernels of a gear that the device is given to do, in order."""
    return tuple(kernel for kernel in model.gears[gear].kernels if kernel.core != "none")


def _with_cores(device: DeviceData, flag: str) -> DeviceData:
    """--aicore_num: '20|40' or '20'."""
    if not flag:
        return device
    cube, _, vector = flag.partition("|")
    return replace(
        device,
        cube_cores=min(device.cube_cores, int(cube)),
        vector_cores=min(device.vector_cores, int(vector) if vector else 2 * int(cube)),
    )


def _work(
    kernel: Kernel, graph: _GraphFacts, device: DeviceData, *, resident: float, weights_in_l2: bool
) -> KernelWork:
    reads = _reads(kernel, graph)
    activations = [tensor for tensor in reads if tensor.name not in graph.constants]
    weights = sum(_size(tensor) for tensor in reads if tensor.name in graph.constants)
    read, written = sum(map(_size, activations)), sum(map(_size, kernel.outputs))
    l2_us, hbm_us = _memory_us(read, written, resident, device)
    weight_us = _weight_us(weights, weights_in_l2, device)
    l2_us, hbm_us = (l2_us + weight_us, hbm_us) if weights_in_l2 else (l2_us, hbm_us + weight_us)
    vectors = kernel.outputs if kernel.cube else (*kernel.outputs, *activations)
    elements = max((prod(map(abs, tensor.shape)) for tensor in vectors), default=0)
    if kernel.core == "aicpu":
        return KernelWork(vector_us=elements * device.aicpu_element_ns / 1e3, l2_us=l2_us, hbm_us=hbm_us)
    cube_dtype: Dtype = kernel.dtype if kernel.dtype in ("float16", "bfloat16", "int8", "float32") else "float32"
    return KernelWork(
        tilings=tuple(_tilings(product, cube_dtype, device) for product in kernel.cube),
        cube_dtype=cube_dtype,
        vector_us=_vector_us(kernel, elements, graph, device),
        l2_us=l2_us,
        hbm_us=hbm_us,
    )


def _reads(kernel: Kernel, graph: _GraphFacts) -> list[Tensor]:
    """What it reads in full: of a table that is looked up, only as much as comes out."""
    if any(graph.operators.get(node) in _LOOKUPS for node in kernel.nodes):
        tables = {tensor.name: tensor for tensor in kernel.inputs if len(tensor.shape) > 1}
        largest = max(tables.values(), key=_size, default=None)
        return [t for t in kernel.inputs if t is not largest] + list(kernel.outputs[:1])
    return list(kernel.inputs)


def _tilings(product: tuple[int, int, int, int], dtype: Dtype, device: DeviceData) -> tuple[tuple[float, float], ...]:
    """(multiply-adds, loads) in µs for each size of tile."""
    batch, m, k, n = (max(1, abs(size)) for size in product)
    macs: float = getattr(device, f"cube_macs_{dtype}")
    inner = _padded(k, 32 if dtype == "int8" else 16)
    found = set()
    for tile in _TILES:
        rows, columns = min(tile[0], _padded(m, 16)), min(tile[1], _padded(n, 16))
        rounds = ceil(batch * ceil(m / rows) * ceil(n / columns) / device.cube_cores)
        adds = rounds * rows * columns * inner / macs
        loads = rounds * (rows + columns) * inner * ITEM_BYTES[dtype] / device.l2_read_bytes_per_cycle
        found.add((adds / device.clock_mhz, loads / device.clock_mhz))
    return tuple(sorted(found))


def _vector_us(kernel: Kernel, elements: int, graph: _GraphFacts, device: DeviceData) -> float:
    """Fixpipe, which hands the cube's result on, converts and scales for nothing."""
    free = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", *(("AscendDequant",) if kernel.cube else ()))
    operators = [graph.operators[node] for node in kernel.nodes if node in graph.operators]
    if not operators:
        operators = ["Cast"]
    default = device.instructions[""]
    count = sum(device.instructions.get(operator, default) for operator in operators if operator not in free)
    if kernel.implementation.startswith(("high_precision", "enable_float_32")):
        count *= device.high_precision_factor
    elif kernel.implementation.startswith(("high_performance", "super_performance")):
        count *= device.high_performance_factor
    width = max((ITEM_BYTES[t.dtype] for t in (*kernel.inputs[:1], *kernel.outputs)), default=2)
    lanes = device.vector_bytes_per_cycle / min(4, max(2, width))
    return elements * count / (lanes * device.vector_cores * device.clock_mhz)


def _memory_us(read: int, written: int, resident: float, device: DeviceData) -> tuple[float, float]:
    """(L2, HBM): what fits the share of L2 goes at its rates, the rest at HBM's; longer where more is moved, without a
    step."""
    total = read + written
    inside = min(1.0, resident / total) if total else 1.0
    per_cycle = device.cube_cores * device.clock_mhz
    cached = read / device.l2_read_bytes_per_cycle + written / device.l2_write_bytes_per_cycle
    streamed = total / device.hbm_bytes_per_cycle
    return inside * cached / per_cycle, (1 - inside) * streamed / per_cycle


def _weight_us(size: int, in_l2: bool, device: DeviceData) -> float:
    rate = device.l2_read_bytes_per_cycle if in_l2 else device.hbm_bytes_per_cycle
    return size / rate / (device.cube_cores * device.clock_mhz)


def _size(tensor: Tensor) -> int:
    return prod(map(abs, tensor.shape)) * ITEM_BYTES[tensor.dtype]


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to
