"""AIPP, preprocessing of images inside the model: its configuration file (--insert_op_conf).

Fields and their meaning are those of the ATC manual's chapter on AIPP. What cuts, pads, resizes or changes colour
spaces is read and not emulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.quantization.amct.protobuf_text import Literal, Message, boolean, parse
from workbench.values.errors import ConfigError

CHANNELS: Mapping[str, int] = {"RGB888_U8": 3, "YUV400_U8": 1}
"""Of each input format that is emulated."""

_TEXT = frozenset({"aipp_mode", "input_format", "related_input_name"})
_SWITCHES = frozenset(
    {"csc_switch", "rbuv_swap_switch", "ax_swap_switch", "crop", "padding", "resize", "single_line_mode"}
)
_NOT_EMULATED = ("resize", "crop", "padding", "csc_switch", "ax_swap_switch")
_NUMBERS = frozenset(
    {
        *("related_input_rank", "src_image_size_w", "src_image_size_h", "load_start_pos_w", "load_start_pos_h"),
        *("crop_size_w", "crop_size_h", "resize_output_w", "resize_output_h", "padding_value"),
        *(f"{side}_padding_size" for side in ("left", "right", "top", "bottom")),
        *(f"{kind}_chn_{i}" for kind in ("mean", "min", "var_reci") for i in range(4)),
        *(f"matrix_r{row}c{column}" for row in range(3) for column in range(3)),
        *(f"{kind}_bias_{i}" for kind in ("input", "output") for i in range(3)),
        *("input_edge_idx", "max_src_image_size", "support_rotation", "cpadding_value"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aipp:
    """One `aipp_op`, for the input of that position or name."""

    input_format: str
    related_input_rank: int = 0
    related_input_name: str = ""
    switches: frozenset[str] = frozenset()
    numbers: Mapping[str, float] = field(default_factory=dict)

    def number(self, name: str, default: float = 0) -> float:
        return self.numbers.get(name, default)

    def whole(self, name: str, default: int = 0) -> int:
        return int(self.numbers.get(name, default))


def read_aipp(path: str) -> tuple[Aipp, ...]:
    """Every static AIPP of a file.

    Raises:
        AtcFailure: E10052 (another form, a wrong value), E13001 (it cannot be read), E10055 (what the emulator does not
            do: dynamic AIPP, cutting, padding, resizing, colours, other formats).
    """
    try:
        message = parse(Path(path).read_text(encoding="utf-8", errors="replace"), file=path)
        return tuple(_aipp(entry.value) for entry in message.fields if _is_op(entry.name, entry.value))
    except OSError as error:
        raise failure("E13001", file=path, errmsg=str(error.strerror)) from error
    except ConfigError as error:
        raise _bad(str(error)) from error


def _is_op(name: str, value: Literal | Message) -> bool:
    if name != "aipp_op" or not isinstance(value, Message):
        raise _bad(f"{name} is no aipp_op")
    return True


def _aipp(message: Literal | Message) -> Aipp:
    text: dict[str, str] = {}
    switches: set[str] = set()
    numbers: dict[str, float] = {}
    for entry in message.fields if isinstance(message, Message) else ():
        if not isinstance(entry.value, Literal):
            raise _bad(f"{entry.name} is no value")
        if entry.name in _TEXT:
            text[entry.name] = entry.value.text
        elif entry.name in _SWITCHES:
            if boolean(entry):
                switches.add(entry.name)
        elif entry.name in _NUMBERS:
            numbers.setdefault(entry.name, _number(entry.name, entry.value.text))
        else:
            raise _bad(f"the field {entry.name} is unknown")
    if text.get("aipp_mode") == "dynamic":
        raise _not_emulated("dynamic AIPP")
    if text.get("aipp_mode") != "static":
        raise _bad("aipp_mode is neither static nor dynamic")
    form = text.get("input_format", "")
    if not form:
        raise _bad("input_format is missing, which static AIPP needs")
    if form not in CHANNELS:
        raise _not_emulated(f"AIPP of {form}")
    for switch in _NOT_EMULATED:
        if switch in switches:
            raise _not_emulated(f"AIPP with {switch}")
    return Aipp(
        input_format=form,
        related_input_rank=int(numbers.get("related_input_rank", 0)),
        related_input_name=text.get("related_input_name", ""),
        switches=frozenset(switches),
        numbers=numbers,
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _bad(f"{text} of {name} is no number") from None


def _bad(reason: str) -> AtcFailure:
    return failure("E10052", reason=reason)


def _not_emulated(what: str) -> AtcFailure:
    return failure("E10055", reason=f"this atc is emulated and does not do {what}")
