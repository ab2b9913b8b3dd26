"""The pre-check: every operator that has no plugin, all at once, and the report file (atc.md §5.6)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import NodeProto

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.onnx_parser import Parsed, type_of
from workbench.cann_emulator.atc.operators import is_registered, qualified

_UNSUPPORTED, _NAME_REPEATED = 1, 9
_PLAIN = frozenset({"Constant", "Input"})
"""Types of the parser's own, which no plugin is looked up for (onnx_parser.cc, kOnnxOpMap)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One operator's verdict; `causes` are (code, message), empty for success."""

    name: str
    type: str
    causes: tuple[tuple[int, str], ...] = ()


def check(parsed: Parsed) -> tuple[tuple[Checked, ...], AtcFailure | None]:
    """Every node of the top-level graph in its order, then what the parser makes nodes of: inputs and initializers.

    Constants of either kind pass whatever the opset is, and need no domain. Of two with one name the later fails. A
    node whose domain says no version (E16005, E19999) ends the check: what was seen until then is returned.

    Returns:
        What was checked, and the failure: one record for each operator that did not pass; None where all did.
    """
    found: list[Checked] = []
    names: set[str] = set()
    for name, node in _parsers_nodes(parsed):
        causes: list[tuple[int, str]] = []
        kind = node if isinstance(node, str) else node.op_type
        if not isinstance(node, str) and kind not in _PLAIN:
            try:
                domain, opset = type_of(parsed, node)
            except AtcFailure as error:
                return tuple(found), AtcFailure(*_records(found), *error.records)
            if not is_registered(domain, opset, kind):
                causes.append((_UNSUPPORTED, "The type is not supported."))
            kind = qualified(domain, opset, kind)
        if name in names:
            causes.append((_NAME_REPEATED, "The name is repeated."))
        names.add(name)
        found.append(Checked(name=name, type=kind, causes=tuple(causes)))
    records = _records(found)
    return tuple(found), AtcFailure(*records) if records else None


def _parsers_nodes(parsed: Parsed) -> Iterator[tuple[str, NodeProto | str]]:
    for node in parsed.proto.graph.node:
        yield node.name, node
    for value in parsed.inputs:
        yield value.name, "Input"
    for index, name in enumerate(sorted({tensor.name for tensor in parsed.proto.graph.initializer if tensor.name})):
        yield f"{name}_{index}", "Constant"


def _records(checked: list[Checked]) -> list[Record]:
    return [
        Record(code="E13010", arguments={"opname": op.name, "optype": op.type})
        if op.causes[0][0] == _UNSUPPORTED
        else Record(code="E13009", arguments={"opname": op.name})
        for op in checked
        if op.causes
    ]


def report_path(options: Mapping[str, str]) -> Path:
    """`--check_report`, or check_result.json in $ASCEND_WORK_PATH or the current directory."""
    if options.get("check_report"):
        return Path(options["check_report"])
    return Path(os.environ.get("ASCEND_WORK_PATH") or ".") / "check_result.json"


def write_report(parsed: Parsed, checked: tuple[Checked, ...], path: Path) -> None:
    """The report, mode 0600. Its `name` is the file's stem [inferred].

    Raises:
        AtcFailure: E13001 where it cannot be opened.
    """
    bad = sum(bool(op.causes) for op in checked)
    content = {
        "fail": bad,
        "name": parsed.path.stem,
        "op": [_entry(op) for op in checked],
        "pass": len(checked) - bad,
        "result": "failed" if bad else "success",
        "total": len(checked),
    }
    try:
        with open(path, "w", encoding="utf-8", opener=_owner_only) as stream:
            json.dump(content, stream, indent=2, ensure_ascii=False)
    except OSError as error:
        raise failure("E13001", file=str(path), errmsg=str(error.strerror)) from error


def _entry(op: Checked) -> dict[str, object]:
    entry: dict[str, object] = {"name": op.name, "result": "failed" if op.causes else "success", "type": op.type}
    if op.causes:
        entry["cause"] = [{"code": code, "message": message} for code, message in op.causes]
    return dict(sorted(entry.items()))


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
