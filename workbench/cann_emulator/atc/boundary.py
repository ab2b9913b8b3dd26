"""The model's inputs and outputs as the device sees them: which, under which name, and in which dtype.

The flags about outputs are read as ge v8.5.0 api/atc/omg.cc:300-375,600-680 does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import AtcFailure, failure, inner_error, invalid
from workbench.cann_emulator.atc.lowering import dtype_of
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.om import Dtype

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
            raise invalid("out_nodes", entry, 'an entry is "node:index" or the name of an output tensor')
        if (nodes and len(parts) == 1) or (tensors and len(parts) == 2):
            raise invalid("out_nodes", text, "node:index and names of output tensors cannot be mixed")
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
            raise invalid("output_type", text, _TYPE_REASON)
        return text
    written: list[str] = []
    typed: dict[tuple[str, int], str] = {}
    for entry in text.split(";"):
        parts = [part.strip() for part in entry.split(":")]
        if len(parts) != 3:
            raise invalid("output_type", entry, 'an entry is "node:index:type"')
        node, digits, name = parts
        index = _index("output_type", digits, digits)
        if name not in OUTPUT_TYPES:
            raise invalid("output_type", name, _TYPE_REASON)
        written.append(f"{node}:{digits}")
        typed.setdefault((node, index), name)
    named = {f"{node}:{index}" for node, index in outputs}
    for name in written:
        if name not in named:
            raise invalid("output_type", name, "a node with its own type is among --out_nodes")
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
        raise invalid(flag, value, "the index is no positive integer")
    if not digits:
        raise failure("E10014", parameter=flag, value=value)
    significant = digits.lstrip("0") or "0"
    if len(significant) > len(str(_INT32_MAX)) or int(significant) > _INT32_MAX:
        raise failure("E10013", parameter=flag, value=value)
    return int(significant)


# --- inputs and outputs as the device sees them ---

_OUTPUT_DTYPES: Mapping[str, Dtype] = {"FP32": "float32", "FP16": "float16", "UINT8": "uint8", "INT8": "int8"}
_FORMATS: Mapping[tuple[str, int], int] = {("NCHW", 4): 0, ("NHWC", 4): 1, ("NCDHW", 5): 30}
_ND = 2

Place = tuple[str, int]
"""A node and the index of one of its outputs; an input of the model is a node with one output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """
    Attributes:
        tensor: ONNX's name.
        name: acl's, `node:index:tensor`, or `node:index` where --out_nodes says so.
        type: of --output_type, such as FP16; "" where it says nothing of this output.
    """

    tensor: str
    name: str
    type: str = ""


def asked_outputs(parsed: Parsed, out_nodes: OutNodes) -> tuple[Place, ...]:
    """Where the outputs that --out_nodes names are made; () for the model's own. A tensor that is named is one of the
    graph's outputs; that a node which is named is there is looked at later, by `output_tensors`.

    Raises:
        AtcFailure: E19999, a tensor that is no output (ge v8.5.0 parser/parser/onnx/onnx_parser.cc:1240).
    """
    if not out_nodes.tensors:
        return out_nodes.nodes
    outputs = {value.name for value in parsed.proto.graph.output}
    makers = _makers(parsed)
    for name in out_nodes.tensors:
        if name not in outputs or name not in makers:
            raise AtcFailure(
                inner_error(f"The tensor {name} is no output of the graph."),
                inner_error("The graph cannot be made of the model."),
            )
    return tuple(makers[name] for name in out_nodes.tensors)


def output_tensors(parsed: Parsed, out_nodes: OutNodes, output_type: str) -> tuple[Output, ...]:
    """Every output: the model's own, or those of --out_nodes, among which an input of the model may be (omg.cc:442).

    Raises:
        AtcFailure: of `asked_outputs` and `parse_output_type`, E10016 (no such node), E10003 (it has fewer outputs).
    """
    asked = asked_outputs(parsed, out_nodes)
    typed = parse_output_type(output_type, asked) if output_type else {}
    makers = _makers(parsed)
    if not asked:
        named = [(value.name, makers.get(value.name)) for value in parsed.proto.graph.output]
    else:
        named = [(_tensor(parsed, place), place) for place in asked]
    outputs = []
    for tensor, place in dict(named).items():
        name = tensor if place is None else f"{place[0]}:{place[1]}"
        if place is not None and not out_nodes.nodes:
            name = f"{name}:{tensor}"
        kind = typed if isinstance(typed, str) else typed.get(place, "") if place is not None else ""
        outputs.append(Output(tensor=tensor, name=name, type=kind))
    return tuple(outputs)


def input_dtypes(parsed: Parsed, options: Mapping[str, str]) -> dict[str, Dtype]:
    """Input → dtype it is fed in: the file's, or float16 by --input_fp16_nodes, whose blanks belong to the names.

    Raises:
        AtcFailure: E10005 (layouts of the inputs), E10016 (no such node), E10017 (no input).
    """
    check_layouts("is_input_adjust_hw_layout", options.get("is_input_adjust_hw_layout", ""))
    dtypes = {value.name: dtype_of(value.type.tensor_type.elem_type) for value in parsed.inputs}
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in options["input_fp16_nodes"].split(";") if options.get("input_fp16_nodes") else ():
        if name not in dtypes:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_fp16_nodes")
        if dtypes[name] in ("float32", "float16", "bfloat16"):
            dtypes[name] = "float16"
    return dtypes


def output_dtypes(outputs: Sequence[Output], own: Mapping[str, Dtype]) -> dict[str, Dtype]:
    """Tensor → dtype it leaves in: the file's own [inferred for every precision mode], or --output_type's.

    Args:
        own: dtypes of the file.
    """
    return {output.tensor: _OUTPUT_DTYPES.get(output.type, own[output.tensor]) for output in outputs}


def format_of(options: Mapping[str, str], rank: int, *, image: bool) -> int:
    """acl's number of an input's format: --input_format where it fits the rank, ND otherwise [inferred].

    Args:
        image: bytes for AIPP, which are NHWC.
    """
    return _FORMATS.get(("NHWC" if image else options.get("input_format") or "NCHW", rank), _ND)


def _makers(parsed: Parsed) -> dict[str, Place]:
    """Tensor → where it is made."""
    makers: dict[str, Place] = {value.name: (value.name, 0) for value in parsed.inputs}
    for node in parsed.proto.graph.node:
        makers.update((name, (node.name, index)) for index, name in enumerate(node.output) if name)
    return makers


def _tensor(parsed: Parsed, place: Place) -> str:
    name, index = place
    made = {value.name: [value.name] for value in parsed.inputs}
    made.update((node.name, list(node.output)) for node in parsed.proto.graph.node)
    if name not in made:
        raise failure("E10016", opname=name, parameter="out_nodes")
    if index >= len(made[name]):
        reason = f"the node {name} has {len(made[name])} outputs"
        raise failure("E10003", parameter="out_nodes", value=f"{name}:{index}", reason=reason)
    return made[name][index]
