"""Reading the ONNX file as ATC's parser does: what it refuses, and how it names what has no name."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.operator_types import is_registered, qualified
from workbench.graph.apart import take_in
from workbench.graph.nodes import names_read
from workbench.values.errors import ConfigError

_LARGEST_FILE = 2**31 - 1
"""Bytes of a model's file (ge v8.5.0 parser/parser/common/acl_graph_parser_util.cc:814)."""

_QUANTIZED = frozenset({"AscendQuant", "AscendDequant", "AscendAntiQuant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A model in memory, every node with a name.

    Attributes:
        domains: of the file's imports → version, as they are written: "" and "ai.onnx" are two.
        inputs: what is fed, initializers excluded.
    """

    path: Path
    proto: ModelProto
    domains: dict[str, int]
    inputs: tuple[ValueInfoProto, ...]

    @property
    def opsets(self) -> dict[str, int]:
        """Domain → version, the default one as "ai.onnx"."""
        return {domain or "ai.onnx": version for domain, version in self.domains.items()}

    @property
    def opset(self) -> int:
        return self.opsets.get("ai.onnx", 0)

    @property
    def quantized(self) -> bool:
        """Whether it is a deploy model of AMCT."""
        return any(node.op_type in _QUANTIZED for node in self.proto.graph.node)


def parse_onnx(path: Path) -> Parsed:
    """The model of a file, with its external data.

    Raises:
        AtcFailure: E13015 (empty, a special file, or over 2 GB), E13001 (cannot be read), E13005 (no ONNX), E16004 (no
            graph: protobuf takes any bytes whose fields happen to close), E16001 (no input or output), E10041
            (external data missing).
    """
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
    if not proto.HasField("graph"):
        raise failure("E16004")
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = tuple(value for value in proto.graph.input if value.name not in initializers)
    if not proto.graph.input:
        raise failure("E16001", value="input")
    if not proto.graph.output:
        raise failure("E16001", value="output")
    try:
        for tensor in proto.graph.initializer:
            take_in(tensor, path)
    except ConfigError as error:
        # [inferred]: the solution text of E10041 speaks of weight files of models over 2 GB
        raise failure("E10041", parameter=str(path)) from error
    _name_nodes(proto)
    return Parsed(
        path=path, proto=proto, domains={entry.domain: entry.version for entry in proto.opset_import}, inputs=inputs
    )


def _type_of(parsed: Parsed, node: NodeProto) -> tuple[str, int]:
    """The domain and version that a node's type is looked up with (onnx_parser.cc, ConstructOriType).

    Raises:
        AtcFailure: E16005 (empty domain in a file with several), E19999 (a domain without import).
    """
    if not node.domain:
        if len(parsed.domains) != 1:
            raise failure("E16005", domain_version_size=str(len(parsed.domains)))
        return next(iter(parsed.domains.items()))
    if node.domain not in parsed.domains:
        raise failure("E19999", message=f"The domain {node.domain} of the node {node.name} has no version.")
    return node.domain, parsed.domains[node.domain]


def in_order(graph: GraphProto, *, nested: bool = False) -> list[NodeProto]:
    """The nodes so that each stands behind what it reads; those that already do stay in their order.

    Args:
        nested: the graph is a branch, which may read what is around it.

    Raises:
        AtcFailure: E19999 (a node reads what nobody makes, or its own result).
    """
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    given = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    before: list[set[int]] = []
    for node in graph.node:
        for name in node.input:
            if name and not nested and name not in makers and name not in given:
                raise failure("E19999", message=f"The node {node.name} reads {name}, which nothing makes.")
        before.append({makers[name] for name in names_read(node) if name in makers})
    order = dependency_order(before, range(len(before)))
    if len(order) < len(graph.node):
        raise failure("E19999", message="The graph has a cycle.")
    return [graph.node[index] for index in order]


def dependency_order(before: Sequence[set[int]], ranks: Sequence[int]) -> list[int]:
    """Indices so that each stands behind those of its `before`; of several that may come next, the least rank first.
    What is in a cycle, or behind one, is left out."""
    waiting = list(map(len, before))
    readers: dict[int, list[int]] = {}
    for index, makers in enumerate(before):
        for maker in makers:
            readers.setdefault(maker, []).append(index)
    ready = [(ranks[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (ranks[reader], reader))
    return order


def _name_nodes(proto: ModelProto) -> None:
    """Name what has no name by its type and a count of the nameless; a name that is there already is not avoided."""
    nameless = 0
    for node in proto.graph.node:
        if not node.name:
            node.name = f"{node.op_type}_{nameless}"
            nameless += 1


# --- the pre-check: every operator that has no plugin, and the report file (atc.md §5.6) ---

_UNSUPPORTED, _NAME_REPEATED = 1, 9
_PLAIN = ("Constant", "Input")
"""Types of the parser's own, which no plugin is looked up for (onnx_parser.cc, kOnnxOpMap)."""


def precheck(parsed: Parsed, report: Path, *, always: bool) -> AtcFailure | None:
    """Every node of the top-level graph in its order, then what the parser makes nodes of: inputs and initializers.

    Constants of either kind pass whatever the opset is, and need no domain. Of two with one name the later fails. A
    node whose domain says no version (E16005, E19999) ends the check.

    Args:
        report: the file, mode 0600, for what was seen until then. Its `name` is the file's stem [inferred].
        always: write it although all passed.

    Returns:
        The failure: one record for each operator that did not pass; None where all did.

    Raises:
        AtcFailure: E13001 where the report cannot be opened.
    """
    seen: list[dict[str, object]] = []
    records: list[Record] = []
    names: set[str] = set()
    ended: AtcFailure | None = None
    weights = sorted({tensor.name for tensor in parsed.proto.graph.initializer if tensor.name})
    made = [("Input", value.name) for value in parsed.inputs]
    made += [("Constant", f"{name}_{index}") for index, name in enumerate(weights)]
    for node in (*parsed.proto.graph.node, *(NodeProto(op_type=kind, name=name) for kind, name in made)):
        kind, causes = node.op_type, list[dict[str, object]]()
        if kind not in _PLAIN:
            try:
                domain, opset = _type_of(parsed, node)
            except AtcFailure as error:
                ended = error
                break
            kind = qualified(domain, opset, node.op_type)
            if not is_registered(domain, opset, node.op_type):
                causes.append({"code": _UNSUPPORTED, "message": "The type is not supported."})
                records.append(Record(code="E13010", arguments={"opname": node.name, "optype": kind}))
        if node.name in names:
            if not causes:
                records.append(Record(code="E13009", arguments={"opname": node.name}))
            causes.append({"code": _NAME_REPEATED, "message": "The name is repeated."})
        names.add(node.name)
        told: dict[str, object] = {"cause": causes} if causes else {}
        seen.append({**told, "name": node.name, "result": "failed" if causes else "success", "type": kind})
    if always or records:
        _write_report(parsed, seen, len(records), report)
    records += ended.records if ended else ()
    return AtcFailure(*records) if records else None


def report_path(options: Mapping[str, str]) -> Path:
    """`--check_report`, or check_result.json in $ASCEND_WORK_PATH or the current directory."""
    return Path(options.get("check_report") or Path(os.environ.get("ASCEND_WORK_PATH") or ".") / "check_result.json")


def _write_report(parsed: Parsed, seen: list[dict[str, object]], bad: int, path: Path) -> None:
    content = {
        "fail": bad,
        "name": parsed.path.stem,
        "op": seen,
        "pass": len(seen) - bad,
        "result": "failed" if bad else "success",
        "total": len(seen),
    }
    try:
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            json.dump(content, stream, indent=2, ensure_ascii=False)
    except OSError as error:
        raise failure("E13001", file=str(path), errmsg=str(error.strerror)) from error
