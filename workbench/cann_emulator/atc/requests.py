"""What a command line asks of the model's inputs and outputs, and the shapes of it against those that the model has.

It is read between the start of the engines and the model's parse (ge v8.5.0 api/atc/omg.cc, InitDomiOmgContext and
ParseOutNodes; in --mode=3 too). Three places of the vendor's sequence look at the shapes: the parse of an input, the
names behind it, and the ranges last (atc.md §3.3, §13a).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import TypeProto

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.folding import Shape
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.output_flags import OutNodes, check_layouts, parse_out_nodes
from workbench.cann_emulator.atc.shape_flags import gear_flag, ranges_of
from workbench.cann_emulator.atc.shapes import Dim, Entries, parse_ranges, parse_shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """
    Attributes:
        shapes: of a static --input_shape, or of one with gears; empty for a range and where nothing is said.
        ranges: what is asked for as a range, in the form of --input_shape_range, read once the model is there.
        gear_flag: the dynamic flag that is given, "" for none.
        gear_text: its value.
    """

    shapes: Entries
    ranges: str
    gear_flag: str
    gear_text: str
    out_nodes: OutNodes


def read_requests(options: Mapping[str, str]) -> Requests:
    """
    Raises:
        AtcFailure: E10002, E10011, E10013, E10014 with E19999 (a static shape); E10005 (layouts of the outputs);
            E10001, E10013, E10014 (--out_nodes).
    """
    ranges, flag = ranges_of(options), gear_flag(options)
    text = "" if ranges else options.get("input_shape", "")
    shapes: Entries = ()
    if text:
        try:
            shapes = parse_shapes(text, gears=bool(flag))
        except AtcFailure as error:
            inner = Record(code="E19999", arguments={"message": f"The input shape {text} cannot be read."})
            raise AtcFailure(*error.records, inner) from error
    check_layouts("is_output_adjust_hw_layout", options.get("is_output_adjust_hw_layout", ""))
    return Requests(
        shapes=shapes,
        ranges=ranges,
        gear_flag=flag,
        gear_text=options.get(flag, ""),
        out_nodes=parse_out_nodes(options.get("out_nodes", "")),
    )


# --- held against what the model has ----------------------------------------------------------------------------------


def check_ranks(parsed: Parsed, requests: Requests) -> None:
    """A static shape, or one with gears, has as many sizes as the model's input; the sizes themselves may differ. An
    input that the model gives no sizes takes any shape (ge v8.5.0 parser/parser/onnx/onnx_data_parser.cc:130).

    Raises:
        AtcFailure: E19999.
    """
    asked = dict(reversed(requests.shapes))  # of a name written twice the first counts
    for value in parsed.inputs:
        declared = declared_shape(value.type)
        if value.name in asked and declared and len(asked[value.name]) != len(declared):
            text = f"The input {value.name} has {len(declared)} dimensions, not {len(asked[value.name])}."
            raise AtcFailure(
                Record(code="E19999", arguments={"message": text}),
                Record(code="E19999", arguments={"message": "The graph cannot be made of the model."}),
            )


def check_names(parsed: Parsed, requests: Requests) -> None:
    """That every input has its shape, if it is to be static, and that every shape has its input (omg.cc:86-135).

    Raises:
        AtcFailure: E10001 (an open axis of a static model), E10016 (no such node), E10017 (a node that is no input).
    """
    asked = dict(reversed(requests.shapes))
    if not requests.ranges and not requests.gear_flag:
        for value in parsed.inputs:
            if any(size < 0 for size in asked.get(value.name, declared_shape(value.type))):
                raise failure(
                    "E10001",
                    parameter="--input_shape",
                    value="NULL",
                    reason="the model has shapes with -1: give --input_shape for each of its inputs",
                )
    _check_inputs(parsed, [name for name, _ in requests.shapes])


def input_shapes(parsed: Parsed, requests: Requests) -> dict[str, tuple[Dim, ...]]:
    """Input → its shape: what was asked for, else what the file says.

    Raises:
        AtcFailure: E10048 (ranges by position, or of another form), E10016, E10017 (names of ranges), E10049 (another
            rank), E10050 (a size of the model lies outside).
    """
    asked: Mapping[str, tuple[Dim, ...]] = dict(reversed(requests.shapes))
    if requests.ranges:
        asked = parse_ranges(requests.ranges)
        _check_inputs(parsed, sorted(asked))  # the order of a C++ map
        for value in parsed.inputs:
            _check_range(asked.get(value.name, ()), declared_shape(value.type))
    return {value.name: asked.get(value.name, declared_shape(value.type)) for value in parsed.inputs}


def declared_shape(kind: TypeProto) -> Shape:
    """The file's shape of an input, -1 where an axis is open; () where it says nothing, as for a scalar."""
    return tuple(max(int(d.dim_value), -1) if d.HasField("dim_value") else -1 for d in kind.tensor_type.shape.dim)


def _check_inputs(parsed: Parsed, names: Sequence[str]) -> None:
    inputs = {value.name for value in parsed.inputs}
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in names:
        if name not in inputs:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_shape")


def _check_range(asked: tuple[Dim, ...], declared: Shape) -> None:
    """ge v8.5.0 graph_metadef/graph/utils/tensor_utils.cc:391. A fixed size is a range with equal ends."""
    if not asked or not declared:
        return
    if len(asked) != len(declared):
        raise failure("E10049", shape_range_size=str(len(asked)), cur_dim_size=str(len(declared)))
    for dim, size in zip(asked, declared, strict=True):
        if size < 0:
            continue
        least, greatest = dim if isinstance(dim, tuple) else (dim if dim >= 0 else 1, dim)
        outside = size < least or 0 <= greatest < size
        if not outside and greatest < -1:
            reason = "it is neither a size nor -1"
            raise failure("E10048", shape_range=f"{least}~{greatest}", reason=reason, sample='"1~20"')
        if outside:
            raise failure("E10050", cur_dim=str(size), shape_range_left=str(least), shape_range_right=str(greatest))
