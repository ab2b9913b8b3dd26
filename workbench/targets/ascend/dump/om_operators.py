"""The compiled graph as ATC's JSON tells of it (--mode=1): which nodes an operator covers, and who reads whom.

Attributes that say it: `_datadump_original_op_names` of an operator, `_datadump_origin_name` and
`_datadump_origin_output_index` of an output (toolkit, const_manager.py). Which attributes of a fused kernel hold the
scale and offset of what it quantizes is [inferred].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.values.documents.input_files import read_bytes
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError

MOST_BYTES = 1 << 28
_CONSTANTS = frozenset({"Const", "Constant"})


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


def read_operators(file: Path) -> dict[str, OmOperator]:
    """Every operator by its name, in the order of the file.

    Raises:
        ConfigError: it cannot be read, or is no model that ATC wrote.
    """
    try:
        data = loads(read_bytes(file, limit_bytes=MOST_BYTES), once=False)
        return {op.name: op for op in map(_operator, _all(data))}
    except (JsonError, TypeError, ValueError, AttributeError) as error:
        hint = "It is what `atc --mode=1 --om=MODEL.om --json=FILE` writes."
        raise ConfigError(f"no graph of a compiled model: {error}.", file=file, hint=hint) from error


def _all(data: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(data, dict) or not isinstance(data.get("graph"), list):
        raise ValueError("the JSON of a model has a list `graph`")
    for graph in data["graph"]:
        for op in graph.get("op", ()):
            if not isinstance(op.get("name"), str) or not isinstance(op.get("type"), str):
                raise ValueError("an operator has no name or no type")
            yield op


def _operator(op: Mapping[str, Any]) -> OmOperator:
    attributes = _attributes(op.get("attr"))
    names = (attributes.get("_datadump_original_op_names") or {}).get("list", {}).get("s") or ()
    scale = _number(attributes, "quant_scale", "scale")
    return OmOperator(
        name=op["name"],
        op_type=op["type"],
        nodes=tuple(map(str, names)),
        inputs=tuple(_reference(str(source)) for source in op.get("input") or ()),
        origins=tuple(_origin(desc) for desc in op.get("output_desc") or ()),
        scale=scale if scale else None,
        offset=_number(attributes, "quant_offset", "offset") or 0.0,
    )


def _attributes(entries: Any) -> dict[str, Mapping[str, Any]]:
    pairs = ((entry.get("key"), entry.get("value")) for entry in entries or () if isinstance(entry, dict))
    return {str(key): value for key, value in pairs if isinstance(value, dict)}


def _number(attributes: Mapping[str, Mapping[str, Any]], *keys: str) -> float | None:
    for key in keys:
        value = attributes.get(key, {}).get("f")
        if isinstance(value, (int, float)):
            return float(value)
    return None


def _origin(desc: Any) -> tuple[str, int] | None:
    attributes = _attributes(desc.get("attr") if isinstance(desc, dict) else None)
    name = attributes.get("_datadump_origin_name", {}).get("s")
    index = attributes.get("_datadump_origin_output_index", {}).get("i", 0)
    return (name, int(index)) if isinstance(name, str) and name else None


def _reference(text: str) -> tuple[str, int]:
    """`name:2`; a name may hold colons itself, and a control edge has -1."""
    name, colon, number = text.rpartition(":")
    return (name, int(number)) if colon and number.lstrip("-").isdigit() else (text, 0)
