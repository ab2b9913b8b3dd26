"""What a command line asks of the model's inputs and outputs, read between the start of the engines and the model's
parse (ge v8.5.0 api/atc/omg.cc, InitDomiOmgContext and ParseOutNodes; in --mode=3 too)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import AtcFailure, Record
from workbench.cann_emulator.atc.output_flags import OutNodes, check_layouts, parse_out_nodes
from workbench.cann_emulator.atc.shape_flags import gear_flag, ranges_of
from workbench.cann_emulator.atc.shapes import Entries, parse_shapes


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
