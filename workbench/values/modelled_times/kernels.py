"""How long a device of this kind takes for a kernel: a few physical forms, fitted to kernels that were timed.

    kernel  = start + √(cube² + vector² + memory²)      what runs side by side overlaps, but not perfectly
    cube    = rounds of tiles over the cube cores × the longer of multiply-adds and loads of a tile
    vector  = rounds of rows over the vector cores × (elements × instructions, steps × cycles, loads of a row)
    memory  = bytes from HBM and from L2, the longer of reads and writes, by as many cores as have a row

Sides of a matrix product are padded to what the cube multiplies at once; tiles are chosen as the quickest of a few, as
a compiler's tiling would. The numbers are in ascend910b.yaml, each with the rows that it was fitted on; results are
the same on every machine. `benchmarks/timing_model` holds the model against measured operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod, sqrt
from typing import Literal, Protocol

from workbench.values.modelled_times.device_data import DeviceData, Kind
from workbench.values.modelled_times.statement import Amounts, Work

Dtype = Literal["float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "uint64"]
ITEM_BYTES: Mapping[Dtype, int] = {
    **{"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1},
    **{"int32": 4, "int64": 8, "uint64": 8},
}


class Tensor(Protocol):
    """What a kernel reads or writes."""

    @property
    def dtype(self) -> Dtype: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A tensor without a name."""

    dtype: Dtype
    shape: tuple[int, ...]


_TILES = tuple(
    (rows, columns)
    for rows in (256, 128, 64, 32, 16)
    for columns in (256, 128, 64, 32, 16)
    if rows * columns <= 256 * 128
)
"""Rows and columns of the result that a core computes at a time: L0C holds 256 × 128 float32 (atc.md §7.2)."""
_LANES = 64
"""Numbers that a vector instruction handles: kernels compute in float32, 256 bytes."""
_BLOCK = 32
"""Bytes that memory moves at once: rows of other lengths are loaded in pieces."""
_SHORT = 16
"""Entries along an axis under which gathering and scattering along it goes entry by entry [inferred]."""
_HELD = 192 * 1024
"""Bytes that a vector core holds (atc.md §7.2): what is longer is read once more."""
_TILE = 16384
"""Bytes that a vector core takes of a long row at a time [inferred]."""
_CHANNELS = 16
"""That images are laid out by."""
_CHUNK = 8192
"""Bytes that are worth a vector core [inferred]: smaller tensors keep fewer cores busy."""


Sides = tuple[tuple[int, int, int, int], ...]
"""(batch, m, k, n) of matrix products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What a kernel asks of the device, before any rate.

    Attributes:
        kind: of `DeviceData.kinds`.
        products: (batch, m, k, n) of matrix products, whose tiles are spread over the cores together.
        dtype: that the cube multiplies.
        numbers: that the vector cores handle, each with the instructions of the kinds in `fused`.
        effort: a factor on instructions, of the implementation that was chosen.
        rows: that vector cores are given one by one; 0 where they share all numbers evenly.
        steps: of each row, one after another: what lies apart in memory is loaded piece by piece.
        loaded: bytes that each row loads over again, before it is computed.
        read_far, read_near: bytes from HBM, and bytes that L2 holds where it is large enough.
        written: bytes, which stay in L2 where it is large enough.
        pieces: whether rows are no multiple of 32 bytes.
        aicpu_elements: handled one by one, where an AI CPU does it.
        error_class: whose error its time has (`DeviceData.errors`).
    """

    kind: str
    error_class: str
    products: Sides = ()
    dtype: Dtype = "float16"
    numbers: float = 0.0
    fused: tuple[str, ...] = ()
    effort: float = 1.0
    rows: float = 0.0
    steps: float = 1.0
    loaded: float = 0.0
    read_far: float = 0.0
    read_near: float = 0.0
    written: float = 0.0
    pieces: bool = False
    aicpu_elements: int = 0


def kernel_cost(work: KernelWork, device: DeviceData) -> Work:
    """A kernel by what its time has the error of: its start, and the rest, which is a part of its class's, or of HBM's
    where that decides it."""
    start_us, compute_us, memory_us, rest_us = times_us(work, device)
    start = "aicpu_launch" if work.kind == "aicpu" else "kernel_start"
    far = memory_us > compute_us and work.read_far > work.read_near + work.written
    parts = {start: start_us, "far_memory" if far else work.error_class: rest_us}
    return Work(count=1, amounts=amounts(**parts))


def amounts(**units: float) -> Amounts:
    """Without what is nothing."""
    return tuple((name, float(f"{amount:.7g}")) for name, amount in units.items() if amount)


def times_us(work: KernelWork, device: DeviceData) -> tuple[float, float, float, float]:
    """(start, compute, memory, what it takes beyond its start, in which the two before overlap)."""
    memory = _memory_us(work, device)
    if work.kind == "aicpu":
        start, cube, vector = device.aicpu_launch_us, 0.0, work.aicpu_elements * device.aicpu_element_ns / 1e3
    else:
        kind = device.kinds[work.kind]
        instructions = work.effort * sum(device.kinds[name].instructions for name in work.fused)
        rounds = ceil(work.rows / device.vector_cores)
        share = work.numbers * rounds / work.rows if work.rows else work.numbers / device.vector_cores
        cycles = share * instructions / _LANES + rounds * work.steps * kind.row_instructions
        cycles /= device.vector_efficiency
        if work.pieces and not work.products:
            cycles *= kind.in_pieces
        vector = (cycles + rounds * work.loaded / device.core_load_bytes_per_cycle) / device.clock_mhz
        start, cube = _start_us(work, kind, device), _cube_us(work, kind, device)
    return start, sqrt(cube**2 + vector**2), memory, sqrt(cube**2 + vector**2 + memory**2)


def operator_work(
    operators: Sequence[str],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    device: DeviceData,
    *,
    products: Sides = (),
    dtype: Dtype = "float16",
    attributes: Mapping[str, object] | None = None,
) -> KernelWork:
    """What an operator asks for, everything that it reads coming from HBM.

    Args:
        operators: names of Ascend's or ONNX's that it covers, what gives the kernel its name first.
        products: as `Kernel.cube` has them.
        attributes: axis and perm, where they decide work.
    """
    asked = attributes or {}
    tensors = [*outputs] if products else [*outputs, *inputs]
    largest = max(tensors, key=elements_of, default=Array(dtype="float16", shape=(0,)))
    elements = elements_of(largest)
    own = device.kind_of(operators[0])
    covered = [device.kind_of(operator) or "elementwise" for operator in operators[1:]]
    if products:
        kind = _product_kind(own, dtype, device)
        # Fixpipe, which hands the cube's result on, converts and scales for nothing
        fused = [name for name in covered if device.kinds[name].on_cube is None and name != "quantize"]
        if kind == "attention":
            elements, fused = products[0][0] * products[0][1] * products[0][3], ["attention"]
    elif own is None or own in covered:
        kind = _shaped(
            own or max(covered, key=lambda name: device.kinds[name].instructions, default="elementwise"), asked, largest
        )
        fused = [kind if name == own else name for name in covered] or [kind]
    else:  # several operators that are known as one, such as a layer norm
        kind = _shaped(own, asked, largest)
        fused = [kind]
    work = KernelWork(
        kind=kind,
        error_class=device.error_class(kind, operators, int8=dtype == "int8"),
        products=products,
        dtype=dtype if dtype in ("float16", "bfloat16", "int8") else "float32",
        numbers=elements,
        fused=tuple(fused),
        read_far=sum(map(size_bytes, inputs)),
        written=sum(map(size_bytes, outputs)),
        pieces=_in_pieces(products, dtype, [*inputs, *outputs], kind),
    )
    if kind == "attention":
        return replace(work, rows=products[0][0] * products[0][1])
    if kind == "recurrent":  # step by step
        return replace(work, rows=1, steps=abs(inputs[0].shape[0]), numbers=0)
    return work if products else _in_rows(work, operators[0], asked, largest, inputs, outputs, device)


def _product_kind(own: str | None, dtype: Dtype, device: DeviceData) -> str:
    if own not in (None, "matmul") and device.kinds[own].on_cube is not None:
        return own
    return {"int8": "matmul_int8", "float16": "matmul", "bfloat16": "matmul"}.get(dtype, "matmul_float32")


def _shaped(kind: str, attributes: Mapping[str, object], tensor: Tensor) -> str:
    """The kind where an axis or a permutation makes it another one."""
    rank = len(tensor.shape)
    order = attributes.get("perm")
    if kind in ("softmax", "reduce") and rank - 1 not in _axes(attributes, rank):
        return f"{kind}_strided"
    if kind == "transpose" and isinstance(order, list) and order and order[-1] == len(order) - 1:
        return "transpose_rows"
    return kind


def _axes(attributes: Mapping[str, object], rank: int) -> list[int]:
    """Axes that are reduced: the last one where none is named."""
    given = attributes.get("axis", attributes.get("axes"))
    axes = [given] if isinstance(given, int) else given if isinstance(given, list) and given else [-1]
    return sorted(axis % max(rank, 1) for axis in axes)


def _in_rows(
    work: KernelWork,
    operator: str,
    attributes: Mapping[str, object],
    tensor: Tensor,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    device: DeviceData,
) -> KernelWork:
    """How the vector cores share it; `tensor` is the largest."""
    kind, shape, cores = device.kinds[work.kind], tuple(map(abs, tensor.shape)) or (1,), device.vector_cores
    first, last = (tuple(map(abs, one[0].shape)) if one else shape for one in (inputs, outputs))
    width = ITEM_BYTES[inputs[0].dtype if inputs else tensor.dtype]
    if work.kind.endswith("_strided"):
        axis = _axes(attributes, len(shape))[-1]
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        each = inner * kind.instructions / _LANES
        # a core takes whole rows, or all of them share each
        alone = ceil(outer / cores) * (kind.row_instructions + each) <= outer * (kind.row_instructions + each / cores)
        held = shape[axis] * (inner if alone else inner / cores) * 4
        passes = 2 if work.kind.startswith("softmax") and held > _HELD else 1
        return replace(work, rows=outer if alone else outer * cores, steps=shape[axis] * passes)
    if work.kind == "pool" and len(first) == len(last) > 2:  # a pixel of all channels at a time
        window = prod(ceil(a / b) + (a % b > 0) for a, b in zip(first[2:], last[2:], strict=True))
        loaded = window * first[1] * width
        return replace(work, rows=last[0] * prod(last[2:]), steps=1 + window, loaded=loaded, numbers=0)
    if work.kind == "sample" and len(first) == len(last) > 3:  # a point and its neighbours, of all channels
        ratio = attributes.get("sampling_ratio", 0)
        points = last[0] * prod(last[2:]) * (ratio**2 if isinstance(ratio, int) and ratio else 1)
        corners = 1 if attributes.get("mode") in ("nearest", b"nearest") else 2 ** (len(first) - 2)
        return replace(work, rows=points, steps=corners, numbers=points * corners * first[1])
    if work.kind in ("resize", "depthwise") and len(first) == len(last) == 4:
        rows = last[0] * ceil(last[1] / _CHANNELS) * last[2]
        loaded = 2 * _CHANNELS * first[3] * width if work.kind == "resize" else 0
        return replace(work, rows=rows, loaded=loaded, numbers=rows * _CHANNELS * last[3])
    if work.kind == "transpose":
        return replace(work, numbers=work.numbers * max(1, width / 4))
    if work.kind in ("gather_elements", "scatter_elements"):
        axis = _axes(attributes, len(shape))[-1]
        short = shape[axis] < _SHORT
        added = attributes.get("reduction", "none") not in ("none", b"none")
        return replace(work, effort=(device.short_axis_factor if short else 1) * (device.atomic_factor if added else 1))
    if not kind.row_instructions:
        return work
    if work.kind == "top_k":
        length = shape[_axes(attributes, len(shape))[-1]]
        turned = () if length == shape[-1] else ("transpose", "transpose")
        return replace(work, rows=max(work.numbers / length, cores), fused=("top_k", *turned))
    if work.kind == "glu":  # number by number, in pieces of what a core holds
        return replace(work, rows=max(work.numbers / max(1, shape[-1]), work.numbers * width / _TILE))
    axes = _axes(attributes, len(shape)) if work.kind == "reduce" else [len(shape) - 1]
    found = work.numbers / max(1, prod(shape[axis] for axis in axes))
    # several cores share a long row, unless its places count
    return replace(
        work, rows=found if kind.error_class != "reduce" or operator.startswith("Arg") else max(found, cores)
    )


def _in_pieces(products: Sides, dtype: Dtype, tensors: Iterable[Tensor], kind: str) -> bool:
    if kind in ("conv", "attention"):
        return False
    width = ITEM_BYTES[dtype]
    if any(k * width % _BLOCK or n * width % _BLOCK for _, _, k, n in products):
        return True
    rows = (ITEM_BYTES[tensor.dtype] * (abs(tensor.shape[-1]) if tensor.shape else 1) for tensor in tensors)
    return not products and any(row % _BLOCK for row in rows)


def _start_us(work: KernelWork, kind: Kind, device: DeviceData) -> float:
    """From one core's start to that of all of them, which few bytes keep not busy."""
    whole = device.kernel_launch_us * (device.full_launches if kind.launches is None else kind.launches)
    if kind.on_cube is not None or kind.row_instructions:
        return whole
    share = min(1.0, ceil((work.read_far + work.read_near + work.written) / _CHUNK) / device.vector_cores)
    return max(0.0, whole - (1 - share) * device.kernel_launch_us * (1 - device.one_core_launches))


def _cube_us(work: KernelWork, kind: Kind, device: DeviceData) -> float:
    if not work.products or kind.on_cube is None:
        return 0.0
    dtype = "float16" if kind.on_cube == "halves" and work.dtype != "int8" else work.dtype
    peak: float = getattr(device, f"cube_macs_{dtype}")
    reached: float = getattr(device, f"cube_efficiency_{dtype}")
    macs = peak * reached * kind.of_cube
    width = ITEM_BYTES[dtype]
    found = []
    if work.kind == "attention":  # the second product takes what the first leaves in a core
        batch, length, _, _ = work.products[0]
        inner = sum(_padded(k, 16) * _padded(n, 16) for _, _, k, n in work.products)
        rounds = ceil(batch * ceil(length / 128) / device.cube_cores)
        return rounds * min(128, _padded(length, 16)) * inner / macs / device.clock_mhz
    for tall, wide in _TILES:
        sides = [(min(tall, _padded(m, 16)), min(wide, _padded(n, 16))) for _, m, _, n in work.products]
        tiles = sum(b * ceil(m / a) * ceil(n / c) for (b, m, _, n), (a, c) in zip(work.products, sides, strict=True))
        rows, columns = map(max, zip(*sides, strict=True))
        inner = max(_padded(k, 32 if dtype == "int8" else 16) for _, _, k, _ in work.products)
        adds = rows * columns * inner / macs
        loads = (rows + columns) * inner * width / device.l2_read_bytes_per_cycle
        found.append(ceil(tiles / device.cube_cores) * max(adds, loads))
    pieces = kind.in_pieces if work.pieces else 1.0
    return float(min(found) / device.clock_mhz * pieces)


def _memory_us(work: KernelWork, device: DeviceData) -> float:
    """What does not fit the share of L2 goes through HBM, read and written; longer where more is moved, without a
    step."""
    near = work.read_near + work.written
    total = work.read_far + near
    beyond = max(0.0, 1.0 - device.l2_mib * 2**20 * device.l2_share / total) if total else 0.0
    hbm = device.hbm_tb_per_s * device.memory_efficiency * 1e6
    if work.rows and not work.products:
        hbm = min(hbm, work.rows * device.core_load_bytes_per_cycle * device.clock_mhz)
    cycles = device.cube_cores * device.clock_mhz * device.memory_efficiency
    read = work.read_far / hbm + (1 - beyond) * work.read_near / (cycles * device.l2_read_bytes_per_cycle)
    written = (1 - beyond) * work.written / (cycles * device.l2_write_bytes_per_cycle)
    return max(read, written) + beyond * near / hbm


def elements_of(tensor: Tensor) -> int:
    return prod(map(abs, tensor.shape))


def size_bytes(tensor: Tensor) -> int:
    return elements_of(tensor) * ITEM_BYTES[tensor.dtype]


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to
