"""The model's inputs and outputs as the device sees them: which, under which name, and in which dtype.

The flags about outputs are read as ge v8.5.0 api/atc/omg.cc:300-375,600-680 does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from workbench.cann_emulator.atc.failure import AtcFailure, failure, inner_error, invalid
from workbench.cann_emulator.atc.lowering import dtype_of
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.om import Dtype

OUTPUT_DTYPES: Mapping[str, Dtype] = {"FP32": "float32", "FP16": "float16", "UINT8": "uint8", "INT8": "int8"}
_OUTPUT_TYPES = (*OUTPUT_DTYPES, "HIF8", "FP8E5M2", "FP8E4M3FN")
_INT32_MAX = 2**31 - 1
_FORMATS: Mapping[tuple[str, int], int] = {("NCHW", 4): 0, ("NHWC", 4): 1, ("NCDHW", 5): 30}
_ND = 2

Place = tuple[str, int]
"""A node and the index of one of its outputs; an input of the model is a node with one output."""
OutNodes = tuple[Place, ...] | tuple[str, ...]
"""What --out_nodes names, in the order written: nodes with the index of an output, or tensors; or nothing."""


def parse_out_nodes(text: str) -> OutNodes:
    """The value of --out_nodes. Blanks belong to the names, and an index has none."""
    entries = [entry.split(":") for entry in text.split(";")] if text else []
    for parts in entries:
        if len(parts) > 2:
            raise invalid("out_nodes", ":".join(parts), 'an entry is "node:index" or the name of an output tensor')
        if len(parts) != len(entries[0]):
            raise invalid("out_nodes", text, "node:index and names of output tensors cannot be mixed")
    if entries and len(entries[0]) == 1:
        return tuple(parts[0] for parts in entries)
    return tuple((name, _index("out_nodes", digits, text)) for name, digits in entries)


def parse_output_type(text: str, outputs: Collection[Place]) -> str | Mapping[Place, str]:
    """The type of all outputs, or (node, index) → type of each that is named.

    Args:
        outputs: those that --out_nodes names, by either style.
    """
    reason = f"an output is one of {', '.join(_OUTPUT_TYPES)}"
    if ":" not in text:
        if text not in _OUTPUT_TYPES:
            raise invalid("output_type", text, reason)
        return text
    typed: dict[Place, str] = {}
    for entry in text.split(";"):
        parts = [part.strip() for part in entry.split(":")]
        if len(parts) != 3:
            raise invalid("output_type", entry, 'an entry is "node:index:type"')
        place = parts[0], _index("output_type", parts[1], parts[1])
        if parts[2] not in _OUTPUT_TYPES:
            raise invalid("output_type", parts[2], reason)
        typed.setdefault(place, parts[2])
    for node, index in typed:
        if (node, index) not in outputs:
            raise invalid("output_type", f"{node}:{index}", "a node with its own type is among --out_nodes")
    return typed


def check_layouts(flag: str, text: str) -> None:
    """--is_input_adjust_hw_layout, --is_output_adjust_hw_layout: words between commas, blanks around them left out."""
    for word in text.split(",") if text else ():
        if word.strip() not in ("true", "false"):
            raise failure("E10005", parameter=flag, value=word.strip())


def _index(flag: str, digits: str, value: str) -> int:
    if re.search(r"[^0-9]", digits):
        raise invalid(flag, value, "the index is no positive integer")
    if not digits:
        raise failure("E10014", parameter=flag, value=value)
    if len(digits) > 10 or int(digits) > _INT32_MAX:
        raise failure("E10013", parameter=flag, value=value)
    return int(digits)


class Output(NamedTuple):
    tensor: str  # ONNX's name
    name: str  # acl's, `node:index:tensor`, or `node:index` where --out_nodes says so
    type: str = ""  # of --output_type, such as FP16; "" where it says nothing of this output


def asked_outputs(parsed: Parsed, out_nodes: OutNodes) -> tuple[Place, ...]:
    """Where the outputs that --out_nodes names are made; () for the model's own. A tensor that is named is one of the
    graph's outputs (onnx_parser.cc:1240); nodes are looked at later, by `output_tensors`."""
    makers, outputs = _makers(parsed), {value.name for value in parsed.proto.graph.output}
    for asked in out_nodes:
        if isinstance(asked, str) and (asked not in outputs or asked not in makers):
            text = f"The tensor {asked} is no output of the graph."
            raise AtcFailure(inner_error(text), inner_error("The graph cannot be made of the model."))
    return tuple(makers[asked] if isinstance(asked, str) else asked for asked in out_nodes)


def output_tensors(parsed: Parsed, out_nodes: OutNodes, output_type: str) -> tuple[Output, ...]:
    """Every output: the model's own, or those of --out_nodes, among which an input of the model may be (omg.cc:442)."""
    makers, asked = _makers(parsed), asked_outputs(parsed, out_nodes)
    typed = parse_output_type(output_type, asked) if output_type else {}
    tensors = {place: tensor for tensor, place in makers.items()}
    for name, index in asked:
        if (name, index) not in tensors:
            count = sum(name == node for node, _ in tensors)
            if not count:
                raise failure("E10016", opname=name, parameter="out_nodes")
            reason = f"the node {name} has {count} outputs"
            raise failure("E10003", parameter="out_nodes", value=f"{name}:{index}", reason=reason)
    by_node = bool(out_nodes) and not isinstance(out_nodes[0], str)
    outputs = []
    for tensor in [tensors[place] for place in asked] or [value.name for value in parsed.proto.graph.output]:
        place = makers.get(tensor)
        node = [f"{place[0]}:{place[1]}"] if place else []
        kind = typed if isinstance(typed, str) else typed.get(place or ("", 0), "")
        outputs.append(Output(tensor, ":".join(node if node and by_node else [*node, tensor]), kind))
    return tuple(outputs)


def input_dtypes(parsed: Parsed, options: Mapping[str, str]) -> dict[str, Dtype]:
    """Input → dtype it is fed in: the file's, or float16 by --input_fp16_nodes, whose blanks belong to the names."""
    check_layouts("is_input_adjust_hw_layout", options.get("is_input_adjust_hw_layout", ""))
    dtypes = {value.name: dtype_of(value.type.tensor_type.elem_type) for value in parsed.inputs}
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in options["input_fp16_nodes"].split(";") if options.get("input_fp16_nodes") else ():
        if name not in dtypes:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_fp16_nodes")
        if dtypes[name] in ("float32", "float16", "bfloat16"):
            dtypes[name] = "float16"
    return dtypes


def format_of(options: Mapping[str, str], rank: int) -> int:
    """acl's number of an input's format: --input_format where it fits the rank, ND otherwise [inferred]."""
    return _FORMATS.get((options.get("input_format") or "NCHW", rank), _ND)


def _makers(parsed: Parsed) -> dict[str, Place]:
    """Tensor → where it is made."""
    makers: dict[str, Place] = {value.name: (value.name, 0) for value in parsed.inputs}
    for node in parsed.proto.graph.node:
        makers.update((name, (node.name, index)) for index, name in enumerate(node.output) if name)
    return makers
