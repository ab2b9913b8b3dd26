"""The pre-check: every operator that has no plugin, all at once, and the report file (atc.md §5.6)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.onnx_parser import Parsed, node_opset
from workbench.cann_emulator.atc.operators import is_registered, qualified

_UNSUPPORTED, _NAME_REPEATED = 1, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One operator's verdict; `causes` are (code, message), empty for success."""

    name: str
    type: str
    causes: tuple[tuple[int, str], ...] = ()


def check(parsed: Parsed) -> tuple[Checked, ...]:
    """Every node of the top-level graph, in its order.

    Raises:
        AtcFailure: E16005 or E19999 of the domains: found before anything can be said of the operators.
    """
    found = []
    repeated = set(parsed.repeated)
    for node in parsed.proto.graph.node:
        opset = node_opset(parsed, node.domain)
        causes: list[tuple[int, str]] = []
        if not is_registered(node.domain, opset, node.op_type):
            causes.append((_UNSUPPORTED, "The type is not supported."))
        if node.name in repeated:
            causes.append((_NAME_REPEATED, "The name is repeated."))
        found.append(Checked(name=node.name, type=qualified(node.domain, opset, node.op_type), causes=tuple(causes)))
    return tuple(found)


def failed(checked: tuple[Checked, ...]) -> AtcFailure | None:
    """The failure of a model with operators that did not pass: one record each; None where all did."""
    records = [
        Record(code="E13010", arguments={"opname": op.name, "optype": op.type})
        if op.causes[0][0] == _UNSUPPORTED
        else Record(code="E13009", arguments={"opname": op.name})
        for op in checked
        if op.causes
    ]
    return AtcFailure(*records) if records else None


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
