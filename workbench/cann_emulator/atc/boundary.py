"""The model's inputs and outputs as the device sees them: which, under which name, and in which dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.lowering import dtype_of
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.output_flags import OutNodes, check_layouts, parse_output_type
from workbench.cann_emulator.om import Dtype

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
                Record(code="E19999", arguments={"message": f"The tensor {name} is no output of the graph."}),
                Record(code="E19999", arguments={"message": "The graph cannot be made of the model."}),
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
