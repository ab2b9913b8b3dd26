"""Kernel of a compiled file → the nodes of the ONNX graph that it came of: names through fusions.

ATC tells them in its JSON of an OM (--mode=1): an operator's attribute `_datadump_original_op_names` lists the nodes
that were fused into it, for dumps to be compared with (ge, ATTR_NAME_DATA_DUMP_ORIGIN_OP_NAMES). One that ATC put in,
as a Cast, has none. For whoever holds something of a device, named by kernels, against the model: the prices of layers,
and dumps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.targets.ascend.atc.atc import compile_environment, compile_timeout_s, find_atc
from workbench.targets.ascend.atc.failure import failure_of, no_file
from workbench.targets.ascend.atc.om_to_json import run_to_json
from workbench.targets.ascend.paths import place_model, work_directory
from workbench.values.documents.json_reader import loads

_ORIGINAL = ("_datadump_original_op_names", "_datadump_original_name", "original_op_names")
_NO_KERNELS = frozenset({"Const", "Constant", "Data", "NetOutput", "RefData"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """One operator of a compiled file.

    Attributes:
        nodes: of the ONNX graph that was compiled, in its order; empty for one that the compiler put in.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]


def fused_kernels(om: Path) -> Mapping[str, FusedKernel]:
    """Kernel → what it came of. Runs ATC, which takes seconds: keep the answer.

    Raises:
        CompileError, ToolchainError: ATC cannot read the file, or cannot be started.
    """
    with work_directory(om.parent, "names") as root:
        directory = root / "json"
        directory.mkdir()
        run, file = run_to_json(
            find_atc(os.environ),
            place_model(om, root),
            directory,
            log=root / "json.log",
            environment=compile_environment(os.environ, directory, workers=1),
            timeout_s=compile_timeout_s(os.environ),
        )
        if run.status != 0:
            raise failure_of(run, f"{om.name} into JSON")
        try:
            return kernels_of_json(loads(file.read_text(encoding="utf-8", errors="replace"), once=False))
        except (OSError, ValueError) as error:
            raise no_file(run, f"{om.name} into JSON", f"its JSON cannot be read: {error}") from error


def kernels_of_json(data: Any) -> dict[str, FusedKernel]:
    """The same of ATC's JSON.

    Raises:
        ValueError: it is not of that form.
    """
    if not isinstance(data, dict) or not isinstance(data.get("graph"), list):
        raise ValueError("the JSON of a model has a list `graph`")
    found = {}
    for graph in data["graph"]:
        for op in graph.get("op", ()) if isinstance(graph, dict) else ():
            if not isinstance(op, dict) or not isinstance(op.get("type"), str):
                raise ValueError("an operator has no type")
            name, kind = str(op.get("name", "")), op["type"]
            if kind not in _NO_KERNELS:
                found[name] = FusedKernel(name=name, op_type=kind, nodes=tuple(_originals(op)))
    return found


def _originals(op: Mapping[str, Any]) -> Iterator[str]:
    attributes = op.get("attr", ())
    for entry in attributes if isinstance(attributes, list) else ():
        if isinstance(entry, dict) and entry.get("key") in _ORIGINAL:
            value = entry.get("value")
            listed = value.get("list", {}) if isinstance(value, dict) else {}
            names = listed.get("s", ()) if isinstance(listed, dict) else ()
            yield from (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str) and name)
