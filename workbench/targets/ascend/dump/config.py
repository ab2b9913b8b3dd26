"""acl.json of a run that dumps tensors (pyacl.md §5.5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from workbench.values.system.files import temporary_beside

DUMP = "dump"
"""Folder of the dump, beside acl.json; it has to exist before `acl.init`."""


def write_dump_config(directory: Path, *, layers: Sequence[str] = ()) -> Path:
    """acl.json for inputs and outputs of every operator, or of those named, of whatever model is loaded.

    Not together with the overflow check or with profiling, and never while something is timed.
    """
    folder = directory / DUMP
    folder.mkdir(parents=True, exist_ok=True)
    section = {
        "dump_path": str(folder.resolve()),
        "dump_list": [{"layer": list(layers)} if layers else {}],
        "dump_mode": "all",
        "dump_level": "op",
        "dump_op_switch": "off",
        "dump_data": "tensor",
    }
    file = directory / "acl.json"
    with temporary_beside(file, durable=False) as draft:
        draft.write_text(json.dumps({"dump": section}, indent=2), encoding="utf-8")
    return file
