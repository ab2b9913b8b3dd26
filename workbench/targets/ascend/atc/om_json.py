"""What a compiled file is made of: ATC's JSON of an OM (--mode=1), asked for and read.

    count_kernels   what runs, and how much of it in integers
    form_in         what decides its time: everything but names and calibrated factors
    operators_in    which nodes of the ONNX graph an operator covers, and who reads whom: names through fusions

The form follows the graph engine's model proto [inferred]: `graph[].op[]`, each with `type`, `input_desc[].dtype`. ATC
leaves out the content of weights. Fusions show as the operators that came of them. A kernel is named by a digest that
may hold a factor [inferred], so of such a name the words count and not the digits. Attributes that say where an
operator came from: `_datadump_original_op_names` of it, `_datadump_origin_name` and `_datadump_origin_output_index` of
an output (toolkit, const_manager.py). Which attributes of a fused kernel hold the scale and offset of what it quantizes
is [inferred].
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workbench.targets.ascend.atc.atc import failure_of, place_model, run_atc, work_directory
from workbench.values.documents.canonical import digest
from workbench.values.documents.input_files import read_bytes
from workbench.values.documents.json_reader import loads
from workbench.values.errors import CompileError, ConfigError

T = TypeVar("T")

MOST_BYTES = 1 << 28
_PRODUCT = re.compile(
    r"(?i)(weight)?(quant)?(batch)?matmul\w*|fullyconnection\w*|gemm\w*|(depthwise)?conv(olution|\dd\w*)?|deconvolution\w*"
)
_NO_KERNELS = frozenset({"Case", "Const", "Constant", "Data", "NetOutput", "PartitionedCall", "RefData"})
"""Boundary, constants and the choice of a gear: they are in the graph and launch nothing."""

_GEAR = re.compile(r"_ascend_mbatch_batch_(\d+)")
"""In the names of what belongs to one gear (atc.md §8, names in reports of failed kernels)."""

_INT8 = frozenset({"DT_INT8", "DT_UINT8"})

_FACTORS = frozenset({"scale", "offset", "quant_scale", "quant_offset", "dequant_scale", "deq_scale", "data"})
"""Attributes that hold what calibration chose, and the content of a tensor."""
_NAMES = frozenset({"_datadump_original_op_names", "_datadump_original_name", "original_op_names"})
"""Attributes that list ONNX nodes; how many they are counts."""
_ORIGIN = "_datadump_"
"""Attributes of an output that say which tensor of the ONNX file it is begin so."""
_DIGITS = re.compile(r"[0-9a-f]{16,}")
_CONSTANTS = frozenset({"Const", "Constant"})


def ask_om(
    om: Path,
    read: Callable[[bytes], T],
    *,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> T:
    """What `read` makes of ATC's JSON of a compiled file. Runs ATC, which takes seconds and no device.

    Args:
        read: raises ValueError for what is not of the form that it reads.
        log: where ATC's words are kept; without it an error carries them alone.
        environment: of ATC; this process's own where it is not given.

    Raises:
        CompileError, ToolchainError: ATC cannot read the file, or cannot be started.
    """
    base = os.environ if environment is None else environment
    with work_directory(om.parent, "json") as root:
        (directory := root / "json").mkdir()
        file = directory / "model.json"
        flags = {"mode": "1", "om": str(place_model(om, root)), "json": str(file)}
        run = run_atc(flags, directory=directory, log=log or root / "json.log", base=base)
        why: Exception | None = None
        words = ""
        try:
            if run.ended.code == 0:
                return read(file.read_bytes())
        except (OSError, ValueError) as unreadable:
            why = unreadable
            words = f"its JSON cannot be read: {unreadable}" if file.exists() else "there is no JSON file"
        error = failure_of(run, f"{om.name} into JSON", words)
        if log is None and isinstance(error, CompileError):
            error.log_path = None
        raise error from why


def _all_in(content: bytes) -> list[Mapping[str, Any]]:
    """Every operator, in the order of the file.

    Raises:
        ValueError: it is no JSON of a model.
    """
    data = loads(content.decode("utf-8", errors="replace"), once=False)
    if not isinstance(data, dict) or not isinstance(data.get("graph"), list):
        raise ValueError("the JSON of a model has a list `graph`")
    ops = [op for graph in data["graph"] if isinstance(graph, dict) for op in graph.get("op") or ()]
    if not ops or not all(isinstance(op, dict) and isinstance(op.get("type"), str) for op in ops):
        raise ValueError("an operator has no type, or there is none")
    return ops


# --- what runs -----------------------------------------------------------------------------------------------------


def count_kernels(content: bytes) -> tuple[Mapping[str, int], int, int]:
    """(operator type of Ascend → count, without boundary and constants; matrix products and convolutions whose inputs
    are INT8; those whose inputs are not).

    Of a file with gears the operators of one are counted, the last, since the others repeat them [inferred].

    Raises:
        ValueError: it is not of that form, or launches nothing.
    """
    ops = _all_in(content)
    gears = [_GEAR.search(str(op.get("name", ""))) for op in ops]
    last = max((int(gear[1]) for gear in gears if gear), default=0)
    kernels: Counter[str] = Counter()
    int8 = products = 0
    for op, gear in zip(ops, gears, strict=True):
        if op["type"] in _NO_KERNELS or (gear is not None and int(gear[1]) != last):
            continue
        kernels[op["type"]] += 1
        if _PRODUCT.fullmatch(op["type"]):
            # the first two inputs are the factors, the bias behind them is int32
            types = [desc.get("dtype") for desc in op.get("input_desc", ()) if isinstance(desc, dict)][:2]
            products += 1
            int8 += len(types) == 2 and _INT8.issuperset(types)
    if not kernels:
        raise ValueError("no operator is in it")
    return dict(sorted(kernels.items())), int8, products - int8


# --- what decides its time -----------------------------------------------------------------------------------------


def form_in(content: bytes) -> str:
    """64 hex digits; equal for files that differ in numbers alone.

    Raises:
        ValueError: it is not of that form.
    """
    ops = _all_in(content)
    places = {str(op.get("name", "")): f"op {place}" for place, op in enumerate(ops)}
    operators = [
        {
            "type": op["type"],
            "input": [_placed(str(source), places) for source in op.get("input", ())],
            "input_desc": [_without_name(desc) for desc in op.get("input_desc", ())],
            "output_desc": [_without_name(desc) for desc in op.get("output_desc", ())],
            "attr": sorted((_attribute(entry, places) for entry in op.get("attr", ())), key=lambda pair: str(pair[0])),
        }
        for op in ops
    ]
    return digest(operators)


def _placed(source: str, places: Mapping[str, str]) -> str:
    """`name:2` by the place of the operator of that name."""
    name, colon, number = source.rpartition(":")
    return f"{places.get(name, name)}:{number}" if colon else places.get(source, source)


def _without_name(desc: Any) -> Any:
    if not isinstance(desc, dict):
        return desc
    entries = desc["attr"] if isinstance(desc.get("attr"), list) else []
    kept = [e for e in entries if not (isinstance(e, dict) and str(e.get("key", "")).startswith(_ORIGIN))]
    plain = {key: value for key, value in desc.items() if key not in ("name", "attr")}
    return {**plain, "attr": kept} if kept else plain


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


# --- where an operator came from -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OmOperator:
    """Attributes:
    nodes: of the file that was compiled, in its order.
    inputs: (operator, which of its outputs) of each.
    origins: node and output index of each output, where they are told.
    scale, offset: of what it quantizes: stored = round(value · scale) + offset.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    inputs: tuple[tuple[str, int], ...]
    origins: tuple[tuple[str, int] | None, ...]
    scale: float | None = None
    offset: float = 0.0

    @property
    def is_constant(self) -> bool:
        return self.op_type in _CONSTANTS

    @property
    def is_input(self) -> bool:
        return self.op_type == "Data"


def operators_in(content: bytes) -> dict[str, OmOperator]:
    """Every operator by its name, in the order of the file.

    Raises:
        ValueError: it is not of that form.
    """
    try:
        return {op.name: op for op in map(_operator, _all_in(content))}
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def read_operators(file: Path) -> dict[str, OmOperator]:
    """`operators_in` of a file that somebody kept; ConfigError where it is no model that ATC wrote."""
    try:
        return operators_in(read_bytes(file, limit_bytes=MOST_BYTES))
    except ValueError as error:
        hint = "It is what `atc --mode=1 --om=MODEL.om --json=FILE` writes."
        raise ConfigError(f"no graph of a compiled model: {error}.", file=file, hint=hint) from error


def _operator(op: Mapping[str, Any]) -> OmOperator:
    if not isinstance(op.get("name"), str):
        raise TypeError("an operator has no name")
    attributes = _attributes(op)
    scale = _number(attributes, "quant_scale", "scale")
    return OmOperator(
        name=op["name"],
        op_type=op["type"],
        nodes=tuple(map(str, attributes.get("_datadump_original_op_names", {}).get("list", {}).get("s") or ())),
        inputs=tuple(_reference(str(source)) for source in op.get("input") or ()),
        origins=tuple(_origin(desc) for desc in op.get("output_desc") or ()),
        scale=scale if scale else None,
        offset=_number(attributes, "quant_offset", "offset") or 0.0,
    )


def _attributes(holder: Any) -> dict[str, Mapping[str, Any]]:
    entries = holder.get("attr") or () if isinstance(holder, dict) else ()
    pairs = ((entry.get("key"), entry.get("value")) for entry in entries if isinstance(entry, dict))
    return {str(key): value for key, value in pairs if isinstance(value, dict)}


def _number(attributes: Mapping[str, Mapping[str, Any]], *keys: str) -> float | None:
    values = (attributes.get(key, {}).get("f") for key in keys)
    return next((float(value) for value in values if isinstance(value, (int, float))), None)


def _origin(desc: Any) -> tuple[str, int] | None:
    attributes = _attributes(desc)
    name = attributes.get("_datadump_origin_name", {}).get("s")
    index = attributes.get("_datadump_origin_output_index", {}).get("i", 0)
    return (name, int(index)) if isinstance(name, str) and name else None


def _reference(text: str) -> tuple[str, int]:
    """`name:2`; a name may hold colons itself, and a control edge has -1."""
    name, colon, number = text.rpartition(":")
    return (name, int(number)) if colon and number.lstrip("-").isdigit() else (text, 0)
