"""The flags about a model's outputs, read as text (ge v8.5.0 api/atc/omg.cc:300-375,600-680)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import AtcFailure, failure

OUTPUT_TYPES = ("FP32", "FP16", "UINT8", "INT8", "HIF8", "FP8E5M2", "FP8E4M3FN")
_TYPE_REASON = f"an output is one of {', '.join(OUTPUT_TYPES)}"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutNodes:
    """What --out_nodes names, in the order written: nodes with the index of an output, or tensors; or nothing."""

    nodes: tuple[tuple[str, int], ...] = ()
    tensors: tuple[str, ...] = ()


def parse_out_nodes(text: str) -> OutNodes:
    """The value of --out_nodes. Blanks belong to the names, and an index has none.

    Raises:
        AtcFailure: E10001 (the two styles mixed, another form, or an index that is no number), E10013, E10014 (the
            index).
    """
    nodes: list[tuple[str, int]] = []
    tensors: list[str] = []
    for entry in text.split(";") if text else ():
        parts = entry.split(":")
        if len(parts) > 2:
            raise _bad("out_nodes", entry, 'an entry is "node:index" or the name of an output tensor')
        if (nodes and len(parts) == 1) or (tensors and len(parts) == 2):
            raise _bad("out_nodes", text, "node:index and names of output tensors cannot be mixed")
        if len(parts) == 1:
            tensors.append(entry)
        else:
            nodes.append((parts[0], _index("out_nodes", parts[1], text)))
    return OutNodes(nodes=tuple(nodes), tensors=tuple(tensors))


def parse_output_type(text: str, outputs: Collection[tuple[str, int]]) -> str | Mapping[tuple[str, int], str]:
    """The type of all outputs, or (node, index) → type of each that is named.

    Args:
        outputs: (node, index) of those that --out_nodes names, by either style.

    Raises:
        AtcFailure: E10001 (form, type, or a node that is not among the outputs), E10013, E10014 (the index).
    """
    if ":" not in text:
        if text not in OUTPUT_TYPES:
            raise _bad("output_type", text, _TYPE_REASON)
        return text
    written: list[str] = []
    typed: dict[tuple[str, int], str] = {}
    for entry in text.split(";"):
        parts = [part.strip() for part in entry.split(":")]
        if len(parts) != 3:
            raise _bad("output_type", entry, 'an entry is "node:index:type"')
        node, digits, name = parts
        index = _index("output_type", digits, digits)
        if name not in OUTPUT_TYPES:
            raise _bad("output_type", name, _TYPE_REASON)
        written.append(f"{node}:{digits}")
        typed.setdefault((node, index), name)
    named = {f"{node}:{index}" for node, index in outputs}
    for name in written:
        if name not in named:
            raise _bad("output_type", name, "a node with its own type is among --out_nodes")
    return typed


def check_layouts(flag: str, text: str) -> None:
    """--is_input_adjust_hw_layout, --is_output_adjust_hw_layout: words between commas, blanks around them left out.

    Raises:
        AtcFailure: E10005.
    """
    for word in text.split(",") if text else ():
        if word.strip() not in ("true", "false"):
            raise failure("E10005", parameter=flag, value=word.strip())


def _index(flag: str, digits: str, value: str) -> int:
    if re.search(r"[^0-9]", digits):
        raise _bad(flag, value, "the index is no positive integer")
    if not digits:
        raise failure("E10014", parameter=flag, value=value)
    significant = digits.lstrip("0") or "0"
    if len(significant) > len(str(_INT32_MAX)) or int(significant) > _INT32_MAX:
        raise failure("E10013", parameter=flag, value=value)
    return int(significant)


def _bad(flag: str, value: str, reason: str) -> AtcFailure:
    return failure("E10001", parameter=f"--{flag}", value=value, reason=reason)
