"""The emulator's offline model: a container of our own, which no real tool can mistake for the vendor's.

    magic (16 bytes) │ length of the header, u64 │ length of the graph, u64 │ header (JSON) │ graph (ONNX)

The header holds how it was compiled and the kernels it became; the graph is the ONNX model that the kernels name
nodes of. The vendor's own files begin with other bytes, so neither side loads the other's.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Literal

from workbench.values.documents.canonical import canonical_json, decode, encode
from workbench.values.documents.json_reader import loads
from workbench.values.modelled_times.kernels import ITEM_BYTES as ITEM_BYTES
from workbench.values.modelled_times.kernels import Dtype as Dtype

MAGIC = b"EMULATED-OM-v1\0\0"
_LENGTHS = struct.Struct("<QQ")

GearKind = Literal["", "dynamic_batch_size", "dynamic_image_size", "dynamic_dims"]
Core = Literal["cube", "vector", "mix", "aicpu", "none"]
"""What executes a kernel; 'mix' is cube with vector work fused behind it, 'none' costs nothing (a view, a constant)."""


class NotAnOm(Exception):
    """The bytes are no whole container; `reason` says why, `header` whether the header itself was readable."""

    def __init__(self, reason: str, *, header: bool) -> None:
        super().__init__(reason)
        self.header = header


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of the model or of a kernel, at one gear."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]  # -1 where the gears differ (only at the model's boundary)
    format: int = 2  # of acl, 2 is ND, 0 is NCHW (pyacl.md §2.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch on the device: a fused group of ONNX nodes.

    Attributes:
        op_type: of Ascend, such as MatMulV2, LayerNorm, AscendQuant.
        nodes: names of the ONNX nodes it covers, in graph order; the last one gives its result.
        dtype: of its computation: float16 rounds what it writes, whatever it does inside; int8 multiplies integers.
        inputs, outputs: what it reads from and writes to memory, with the stored dtype. Constants are among the
            inputs; what stays inside the kernel is not listed.
        macs: multiply-adds of its cube part, from unpadded shapes.
        cube: (batch, m, k, n) of each matrix product in it, for padding; empty without.
        passes: names of the fusion passes that shaped it.
        implementation: high_precision, high_performance, … where a flag or file chose one; empty for the default.
    """

    name: str
    op_type: str
    core: Core
    nodes: tuple[str, ...]
    dtype: Dtype
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    macs: int = 0
    cube: tuple[tuple[int, int, int, int], ...] = ()
    passes: tuple[str, ...] = ()
    implementation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gear:
    """One shape the model can run at."""

    dims: tuple[int, ...]  # the values of the model's -1 axes, in input order; empty for a static model
    outputs: tuple[Tensor, ...]  # shapes at this gear
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineModel:
    """A compiled model.

    Attributes:
        emulator: revision of the emulator that wrote it.
        soc_version, atc_version, precision_mode: as the vendor spells them.
        command_line: argv joined with blanks.
        options: every flag that was given, as given.
        inputs, outputs: at the boundary, in order, gear input excluded; dynamic axes are -1.
        gear_kind: how the gears are chosen at run time (dynamic_batch_size, dynamic_image_size, dynamic_dims);
            empty for a static one.
        gears: one for a static model; with gears all of them, in the order given to ATC.
        fusions: pass → (match_times, effect_times), of graph and UB.
        work_bytes, weight_bytes: device memory.
        truncate_deq_scale: AscendDequant's factors lose their low 13 bits ([inferred] for 910B3, amct.md §6.6).
        output_names: outputs as acl names them, `node:index:onnx_output_name` (pyacl.md §1), in order.
        graph: ONNX file content.
    """

    emulator: str
    soc_version: str
    atc_version: str
    precision_mode: str
    command_line: str
    options: Mapping[str, str]
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gear_kind: GearKind
    gears: tuple[Gear, ...]
    graph_fusions: Mapping[str, tuple[int, int]]
    ub_fusions: Mapping[str, tuple[int, int]]
    work_bytes: int
    weight_bytes: int
    truncate_deq_scale: bool
    output_names: tuple[str, ...] = ()
    graph: bytes = b""


def largest_gear(model: OfflineModel) -> Gear:
    """The gear whose inputs hold the most elements; of equal ones the first."""
    if len(model.gears) == 1:
        return model.gears[0]
    return max(model.gears, key=lambda gear: sum(prod(shape) for shape in input_shapes(model, gear)))


def input_shapes(model: OfflineModel, gear: Gear) -> tuple[tuple[int, ...], ...]:
    """Shapes of the inputs at a gear, the gear input excluded."""
    axes = sum(size == -1 for tensor in model.inputs for size in tensor.shape)
    # A batch may stand once for all inputs, height and width once for each
    values = iter(gear.dims if len(gear.dims) == axes else gear.dims * axes)
    return tuple(tuple(next(values) if s == -1 else s for s in tensor.shape) for tensor in model.inputs)


def write_om(model: OfflineModel) -> bytes:
    """The container's bytes; equal models give equal bytes."""
    plain = {f.name: encode(getattr(model, f.name)) for f in fields(model) if f.name != "graph"}
    header = canonical_json({"emulated": True, **plain, "graph_sha256": hashlib.sha256(model.graph).hexdigest()})
    return MAGIC + _LENGTHS.pack(len(header.encode()), len(model.graph)) + header.encode() + model.graph


def read_om(content: bytes) -> OfflineModel:
    """The model of a container.

    Raises:
        NotAnOm: other bytes, a length that does not match (header=False), or a damaged body (header=True).
    """
    start = len(MAGIC) + _LENGTHS.size
    if len(content) < start:
        raise NotAnOm(f"{len(content)} bytes are less than a header", header=False)
    if not content.startswith(MAGIC):
        raise NotAnOm("the file does not begin with the emulator's mark", header=False)
    header_length, graph_length = _LENGTHS.unpack_from(content, len(MAGIC))
    if start + header_length + graph_length != len(content):
        raise NotAnOm("the length in the header does not match the file", header=False)
    graph = content[start + header_length :]
    try:
        body = loads(content[start : start + header_length])
        del body["emulated"]
        if body.pop("graph_sha256") != hashlib.sha256(graph).hexdigest():
            raise NotAnOm("the graph is damaged", header=True)
        return replace(decode(OfflineModel, body, "om"), graph=graph)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAnOm(f"the header is damaged: {error}", header=True) from error


def load_om(path: Path) -> OfflineModel:
    """`read_om` of a file; OSError where it cannot be read."""
    return read_om(path.read_bytes())
