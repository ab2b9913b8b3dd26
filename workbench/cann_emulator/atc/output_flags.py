"""What the flags say about outputs, as far as it can be judged without the model (ge v8.5.0 api/atc/omg.cc)."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.cann_emulator.atc.failure import AtcFailure, failure

OUTPUT_TYPES = ("FP32", "FP16", "UINT8", "INT8", "HIF8", "FP8E5M2", "FP8E4M3FN")
_TYPE_REASON = f"an output is one of {', '.join(OUTPUT_TYPES)}"


def parse_out_nodes(text: str) -> tuple[tuple[str, int | None], ...]:
    """(node, index of its output), or (name of an output tensor, None), in the order written.

    Raises:
        AtcFailure: E10001 (the two styles mixed, or neither), E10013, E10014 (the index).
    """
    if not text:
        return ()
    outputs: list[tuple[str, int | None]] = []
    for entry in text.split(";"):
        parts = entry.split(":")
        if len(parts) == 1:
            outputs.append((entry, None))
        elif len(parts) == 2:
            outputs.append((parts[0], _index("out_nodes", parts[1], text)))
        else:
            raise _bad("out_nodes", entry, 'an entry is "node:index" or the name of an output tensor')
        if len({index is None for _, index in outputs}) > 1:
            raise _bad("out_nodes", text, "node:index and names of output tensors cannot be mixed")
    return tuple(outputs)


def parse_output_type(text: str) -> str | tuple[tuple[str, int, str], ...]:
    """The type of all outputs, or (node, index, type) of each that is named.

    Raises:
        AtcFailure: E10001 (form or type), E10013, E10014 (the index).
    """
    if ":" not in text:
        if text not in OUTPUT_TYPES:
            raise _bad("output_type", text, _TYPE_REASON)
        return text
    typed: list[tuple[str, int, str]] = []
    for entry in text.split(";"):
        parts = [part.strip() for part in entry.split(":")]
        if len(parts) != 3:
            raise _bad("output_type", entry, 'an entry is "node:index:type"')
        node, index, name = parts
        number = _index("output_type", index, index)
        if name not in OUTPUT_TYPES:
            raise _bad("output_type", name, _TYPE_REASON)
        typed.append((node, number, name))
    return tuple(typed)


def check_output_flags(options: Mapping[str, str]) -> None:
    """The four flags about outputs, in ATC's order; a pre-check (mode 3) ends before it comes to types.

    Raises:
        AtcFailure: E10005 (a list of true and false), E10001, E10013, E10014.
    """
    for flag in ("is_output_adjust_hw_layout", "is_input_adjust_hw_layout"):
        for word in options.get(flag, "").split(",") if options.get(flag) else ():
            if word.strip() not in ("true", "false"):
                raise failure("E10005", parameter=flag, value=word.strip())
    outputs = parse_out_nodes(options.get("out_nodes", ""))
    if not options.get("output_type") or options.get("mode") == "3":
        return
    typed = parse_output_type(options["output_type"])
    if isinstance(typed, str) or any(index is None for _, index in outputs):
        return  # which node an output tensor belongs to is the model's business
    for node, index, _ in typed:
        if (node, index) not in outputs:
            raise _bad("output_type", f"{node}:{index}", "a node with its own type is among --out_nodes")


def _index(flag: str, text: str, value: str) -> int:
    text = text.strip()
    if not text:
        raise failure("E10014", parameter=flag, value=value)
    if not text.isdecimal():
        raise _bad(flag, value, "the index is no positive integer")
    if int(text) >= 2**31:
        raise failure("E10013", parameter=flag, value=value)
    return int(text)


def _bad(flag: str, value: str, reason: str) -> AtcFailure:
    return failure("E10001", parameter=f"--{flag}", value=value, reason=reason)
