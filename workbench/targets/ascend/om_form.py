"""What of a compiled file decides its time: the graph that ATC tells of it, without names and calibrated factors.

ATC's JSON leaves out the content of weights. Fusions show as the operators that came of them. A kernel is named by a
digest that may hold a factor [inferred], so of such a name the words count and not the digits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.targets.ascend.atc.atc import compile_environment, compile_timeout_s, find_atc
from workbench.targets.ascend.atc.failure import failure_of, no_file
from workbench.targets.ascend.atc.om_to_json import run_to_json
from workbench.targets.ascend.fitting import Shape, turns
from workbench.targets.ascend.interface import INTERFACE
from workbench.targets.ascend.paths import place_model, work_directory
from workbench.values.artifact import Artifact, CompiledFile
from workbench.values.documents.canonical import digest
from workbench.values.documents.json_reader import loads
from workbench.values.errors import CompileError, ToolchainError

_FACTORS = frozenset({"scale", "offset", "quant_scale", "quant_offset", "dequant_scale", "deq_scale", "data"})
"""Attributes that hold what calibration chose, and the content of a tensor."""
_NAMES = frozenset({"_datadump_original_op_names", "_datadump_original_name", "original_op_names"})
"""Attributes that list ONNX nodes; how many they are counts."""
_ORIGIN = "_datadump_"
"""Attributes of an output that say which tensor of the ONNX file it is begin so."""
_DIGITS = re.compile(r"[0-9a-f]{16,}")


def serving_files(artifact: Artifact, batch: int, length: int | None) -> list[CompiledFile]:
    """The files that a call of this shape runs, in turn; every file where the length of a call is not known.

    Raises:
        MeasureError: none is long enough.
    """
    models = [file for file in artifact.files if file.file != INTERFACE]
    by_shape = {Shape(batch=file.batch, length=file.sequence_bin): file for file in models}
    if len(models) == 1 or (length is None and any(shape.length for shape in by_shape)):
        return models
    wanted = Shape(batch=batch, length=length)
    return [by_shape[turn.shape] for turn in turns(tuple(by_shape), wanted)]


def om_form(om: Path) -> str:
    """64 hex digits; equal for files that differ in numbers alone. Runs ATC, which takes seconds.

    Raises:
        CompileError, ToolchainError: ATC cannot read the file, or cannot be started.
    """
    with work_directory(om.parent, "form") as root:
        # its log ends with the folder, so an error carries its words and no path
        directory = root / "json"
        directory.mkdir()
        environment = compile_environment(os.environ, directory, workers=1)
        run, file = run_to_json(
            find_atc(os.environ),
            place_model(om, root),
            directory,
            log=root / "json.log",
            environment=environment,
            timeout_s=compile_timeout_s(os.environ),
        )
        try:
            if run.status != 0:
                raise failure_of(run, f"{om.name} into JSON")
            return form_of_json(file)
        except (OSError, ValueError) as error:
            raise no_file(run, f"{om.name} into JSON", f"its JSON cannot be read: {error}") from error
        except (CompileError, ToolchainError) as error:
            if isinstance(error, CompileError):
                error.log_path = None
            raise


def form_of_json(file: Path) -> str:
    """The form of the OM that ATC wrote this JSON of.

    Raises:
        OSError, ValueError: it cannot be read, or is not of that form.
    """
    return digest(structure_of(loads(file.read_text(encoding="utf-8", errors="replace"), once=False)))


def structure_of(data: Any) -> list[Any]:
    """Every operator of ATC's JSON in its order: type, inputs by their place, tensors, attributes.

    Raises:
        ValueError: the JSON is not of that form.
    """
    if not isinstance(data, dict) or not isinstance(data.get("graph"), list):
        raise ValueError("the JSON of a model has a list `graph`")
    ops = [op for graph in data["graph"] if isinstance(graph, dict) for op in graph.get("op", ())]
    if not ops or not all(isinstance(op, dict) and isinstance(op.get("type"), str) for op in ops):
        raise ValueError("an operator has no type, or there is none")
    places = {str(op.get("name", "")): f"op {place}" for place, op in enumerate(ops)}
    return [
        {
            "type": op["type"],
            "input": [_placed(str(source), places) for source in op.get("input", ())],
            "input_desc": [_without_name(desc) for desc in op.get("input_desc", ())],
            "output_desc": [_without_name(desc) for desc in op.get("output_desc", ())],
            "attr": sorted((_attribute(entry, places) for entry in op.get("attr", ())), key=lambda pair: str(pair[0])),
        }
        for op in ops
    ]


def _placed(source: str, places: Mapping[str, str]) -> str:
    """`name:2` by the place of the operator of that name."""
    name, colon, number = source.rpartition(":")
    return f"{places.get(name, name)}:{number}" if colon else places.get(source, source)


def _without_name(desc: Any) -> Any:
    if not isinstance(desc, dict):
        return desc
    kept = {key: value for key, value in desc.items() if key not in ("name", "attr")}
    attributes = desc.get("attr")
    entries = attributes if isinstance(attributes, list) else []
    named = [e for e in entries if not (isinstance(e, dict) and str(e.get("key", "")).startswith(_ORIGIN))]
    return {**kept, "attr": named} if named else kept


def _attribute(entry: Any, places: Mapping[str, str]) -> list[Any]:
    if not isinstance(entry, dict):
        return ["", entry]
    key = entry.get("key", "")
    if key in _FACTORS:
        return [key, None]
    if key in _NAMES:
        return [key, str(entry.get("value")).count(",")]
    return [key, _plain(entry.get("value"), places)]


def _plain(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: None if key == "data" else _plain(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, places) for inner in value]
    return _DIGITS.sub("#", _placed(value, places)) if isinstance(value, str) else value
