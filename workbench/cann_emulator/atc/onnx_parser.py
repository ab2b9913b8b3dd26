"""Reading the ONNX file as ATC's parser does: what it refuses, and how it names what has no name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import ModelProto, ValueInfoProto

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure

QUANTIZED_OPERATORS = frozenset({"AscendQuant", "AscendDequant", "AscendAntiQuant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A model in memory, every node with a name of its own.

    Attributes:
        opsets: domain → version; the default domain is "ai.onnx".
        inputs: what is fed, initializers excluded.
        repeated: names that two nodes had in the file.
    """

    path: Path
    proto: ModelProto
    opsets: dict[str, int]
    inputs: tuple[ValueInfoProto, ...]
    repeated: tuple[str, ...] = ()

    @property
    def opset(self) -> int:
        return self.opsets.get("ai.onnx", 0)

    @property
    def quantized(self) -> bool:
        """Whether it is a deploy model of AMCT."""
        return any(node.op_type in QUANTIZED_OPERATORS for node in self.proto.graph.node)


def parse_onnx(path: Path) -> Parsed:
    """The model of a file, with its external data.

    Raises:
        AtcFailure: E13001 (cannot be read), E13005 with E10041 (no ONNX), E16004 (no graph), E16001 (no input or
            output), E10041 (external data missing).
    """
    proto = ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise failure("E13001", file=str(path), errmsg=str(error.strerror)) from error
    except DecodeError as error:
        raise _not_onnx(path) from error
    if not proto.HasField("graph"):
        # protobuf takes any bytes whose fields happen to close: without a version it is no ONNX at all
        raise failure("E16004") if proto.ir_version else _not_onnx(path)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = tuple(value for value in proto.graph.input if value.name not in initializers)
    if not inputs:
        raise failure("E16001", value="input")
    if not proto.graph.output:
        raise failure("E16001", value="output")
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        # [inferred]: the solution text of E10041 speaks of weight files of models over 2 GB
        raise failure("E10041", parameter=str(path)) from error
    repeated = _name_nodes(proto)
    opsets = {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}
    return Parsed(path=path, proto=proto, opsets=opsets, inputs=inputs, repeated=repeated)


def node_opset(parsed: Parsed, domain: str) -> int:
    """The opset a node's type is looked up with.

    Raises:
        AtcFailure: E16005 (empty domain in a file with several), E19999 (a domain without import).
    """
    if not domain:
        if len(parsed.opsets) != 1:
            raise failure("E16005", domain_version_size=str(len(parsed.opsets)))
        return next(iter(parsed.opsets.values()))
    if domain not in parsed.opsets:
        raise failure("E19999")
    return parsed.opsets[domain]


def _not_onnx(path: Path) -> AtcFailure:
    return AtcFailure(
        Record(code="E13005", arguments={"file": str(path)}), Record(code="E10041", arguments={"parameter": str(path)})
    )


def _name_nodes(proto: ModelProto) -> tuple[str, ...]:
    """Give every node a name of its own; returns the names that were there twice."""
    counts = Counter(node.name for node in proto.graph.node if node.name)
    taken = set(counts)
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        stem = f"{node.op_type}_{index}"
        name, suffix = stem, 1
        while name in taken:
            name, suffix = f"{stem}_{suffix}", suffix + 1
        node.name = name
        taken.add(name)
        seen.add(name)
    return tuple(sorted(name for name, count in counts.items() if count > 1))
