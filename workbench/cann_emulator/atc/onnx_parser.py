"""Reading the ONNX file as ATC's parser does: what it refuses, and how it names what has no name."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure, inner_error
from workbench.cann_emulator.atc.operator_types import is_registered
from workbench.graph.apart import take_in
from workbench.graph.nodes import names_read
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, QUANT
from workbench.values.errors import ConfigError

_LARGEST_FILE = 2**31 - 1
"""Bytes of a model's file (ge v8.5.0 parser/parser/common/acl_graph_parser_util.cc:814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A model in memory, every node with a name."""

    proto: ModelProto
    domains: dict[str, int]  # of the file's imports → version, as they are written: "" and "ai.onnx" are two
    inputs: tuple[ValueInfoProto, ...]  # what is fed, initializers excluded

    @property
    def opsets(self) -> dict[str, int]:
        """Domain → version, the default one as "ai.onnx"."""
        return {domain or "ai.onnx": version for domain, version in self.domains.items()}

    @property
    def quantized(self) -> bool:
        """Whether it is a deploy model of AMCT."""
        return any(node.op_type in (QUANT, DEQUANT, ANTI_QUANT) for node in self.proto.graph.node)


def parse_onnx(path: Path) -> Parsed:
    """The model of a file, with its external data."""
    proto = ModelProto()
    try:
        size = path.stat().st_size
        if not 0 < size <= _LARGEST_FILE:
            raise failure("E13015", file=str(path), size=str(size), maxsize=str(_LARGEST_FILE))
        proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise failure("E13001", file=str(path), errmsg=str(error.strerror)) from error
    except DecodeError as error:
        raise failure("E13005", file=str(path)) from error
    if not proto.HasField("graph"):  # protobuf takes any bytes whose fields happen to close
        raise failure("E16004")
    initializers = {tensor.name for tensor in proto.graph.initializer}
    for side, values in (("input", proto.graph.input), ("output", proto.graph.output)):
        if not values:
            raise failure("E16001", value=side)
    try:
        for tensor in proto.graph.initializer:
            take_in(tensor, path)
    except ConfigError as error:
        # [inferred]: the solution text of E10041 speaks of weight files of models over 2 GB
        raise failure("E10041", parameter=str(path)) from error
    # by type and a count of the nameless; a name that is there already is not avoided
    for number, node in enumerate(node for node in proto.graph.node if not node.name):
        node.name = f"{node.op_type}_{number}"
    inputs = tuple(value for value in proto.graph.input if value.name not in initializers)
    return Parsed(proto=proto, domains={e.domain: e.version for e in proto.opset_import}, inputs=inputs)


def in_order(graph: GraphProto) -> list[NodeProto]:
    """The nodes so that each stands behind what it reads; those that already do stay in their order."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    given = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    before: list[set[int]] = []
    for node in graph.node:
        for name in node.input:
            if name and name not in makers and name not in given:
                raise failure("E19999", message=f"The node {node.name} reads {name}, which nothing makes.")
        before.append({makers[name] for name in names_read(node) if name in makers})
    try:
        return [graph.node[index] for index in dependency_order(before, range(len(before)))]
    except CycleError as error:
        raise failure("E19999", message="The graph has a cycle.") from error


def dependency_order(before: Sequence[set[int]], ranks: Sequence[int]) -> list[int]:
    """Indices so that each stands behind those of its `before`; of several that may come next, the least rank first.
    CycleError where there is none."""
    sorter, order, ready = TopologicalSorter(dict(enumerate(before))), list[int](), list[tuple[int, int]]()
    sorter.prepare()
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, (ranks[index], index))
        order.append(heapq.heappop(ready)[1])
        sorter.done(order[-1])
    return order


def check_operators(parsed: Parsed) -> None:
    """The pre-check (atc.md §5.6): every node of the top-level graph in its order, then what the parser makes nodes of,
    inputs and initializers. Constants of either kind pass whatever the opset is, and need no domain. Of two with one
    name the later fails. A node whose domain says no version (onnx_parser.cc, ConstructOriType) ends the check.
    Each operator that did not pass has its record."""
    records: list[Record] = []
    names: set[str] = set()
    weights = sorted({tensor.name for tensor in parsed.proto.graph.initializer if tensor.name})
    made = [*(value.name for value in parsed.inputs), *(f"{name}_{index}" for index, name in enumerate(weights))]
    for node in (*parsed.proto.graph.node, *(NodeProto(op_type="Constant", name=name) for name in made)):
        known = True
        if node.op_type not in ("Constant", "Input"):
            if not node.domain and len(parsed.domains) != 1:
                records += failure("E16005", domain_version_size=str(len(parsed.domains))).records
                break
            domain = node.domain or next(iter(parsed.domains))
            if domain not in parsed.domains:
                records.append(inner_error(f"The domain {domain} of the node {node.name} has no version."))
                break
            known = is_registered(domain, parsed.domains[domain], node.op_type)
            if not known:
                # the name that a plugin is looked up by, such as `ai.onnx::11::Gelu`
                kind = f"{domain or 'ai.onnx'}::{parsed.domains[domain]}::{node.op_type}"
                records += failure("E13010", opname=node.name, optype=kind).records
        if known and node.name in names:
            records += failure("E13009", opname=node.name).records
        names.add(node.name)
    if records:
        raise AtcFailure(*records)
