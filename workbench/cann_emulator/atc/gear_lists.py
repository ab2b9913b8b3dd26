"""The three lists of gears as text: what is asked of them with the flags, and which gears they make once compiled.

The flag check looks at characters and counts alone (atc.md §13a; ge v8.5.0 compiler/api/aclgrph/
option_utils.cc:262-430). The compiler reads the numbers, and leaves empty parts out (compiler/graph/preprocess/
multi_batch_options.cc:488).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.shapes import INT64_MAX

GEAR_FLAGS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")

Gears = tuple[tuple[int, ...], ...]

_MINIMUM = 2


def gear_flag(options: Mapping[str, str]) -> str:
    """The dynamic flag that is given, "" for none; at most one passes the flag check."""
    return next((flag for flag in GEAR_FLAGS if options.get(flag)), "")


def check_dynamic_batch(text: str) -> None:
    """
    Raises:
        AtcFailure: E10003, a character that is neither digit nor comma.
    """
    if re.search(r"[^0-9,]", text):
        raise failure("E10003", parameter="dynamic_batch_size", value=text, reason="it may hold digits and commas only")


def check_dynamic_image_size(text: str) -> None:
    """
    Raises:
        AtcFailure: E10003 (another character), E10020 (a group that is no pair).
    """
    text = text.removesuffix(";")
    if re.search(r"[^0-9,; ]", text):
        reason = "it may hold digits, commas, blanks and semicolons only"
        raise failure("E10003", parameter="dynamic_image_size", value=text, reason=reason)
    if any(len(group.split(",")) != 2 for group in text.split(";")):
        raise failure("E10020", dynamic_image_size=text)


def check_dynamic_dims(text: str, *, open_axes: int) -> None:
    """
    Args:
        open_axes: number of -1 over all inputs, which every gear must fill. A part counts although it is empty.

    Raises:
        AtcFailure: E10001 (nothing, or another character than a digit), E10003 (another number of parts).
    """
    text = text.removesuffix(";")
    if not text:
        raise failure("E10001", parameter="--dynamic_dims", value=text, reason="it is empty")
    for group in text.split(";"):
        parts = group.split(",")
        if len(parts) != open_axes:
            reason = f"every gear gives one value for each -1 in the input shape: {open_axes}, not {len(parts)}"
            raise failure("E10003", parameter="dynamic_dims", value=text, reason=reason)
        for part in parts:
            if re.search(r"[^0-9]", part):
                reason = "a value of a gear is a positive integer"
                raise failure("E10001", parameter="--dynamic_dims", value=part, reason=reason)


def parse_gears(flag: str, text: str) -> Gears:
    """The values of every gear, in the order written. Empty parts are no values, and empty groups no gears.

    Raises:
        AtcFailure: E19999, a blank: only that of an image size comes so far.
    """
    groups = text.split(",") if flag == "dynamic_batch_size" else text.split(";")
    gears = [tuple(_value(part) for part in group.split(",") if part) for group in groups]
    return tuple(gear for gear in gears if gear)


def check_gears(gears: Sequence[Sequence[int]]) -> None:
    """
    Raises:
        AtcFailure: E10035 (less than two), E10037 (of different length), E10039 (two the same). E10038, a negative
            value, is defined and out of reach: a gear holds digits only.
    """
    if len(gears) < _MINIMUM:
        raise failure("E10035", shapesize=str(len(gears)), minshapesize=str(_MINIMUM))
    for gear in gears:
        if len(gear) != len(gears[0]):
            raise failure("E10037", shapesize1=str(len(gears[0])), shapesize2=str(len(gear)))
    if len({tuple(gear) for gear in gears}) != len(gears):
        raise failure("E10039")


def _value(part: str) -> int:
    if re.search(r"[^0-9]", part):
        raise _no_number(part)
    significant = part.lstrip("0")
    # a number that does not fit becomes the greatest, as strtol gives it
    return INT64_MAX if len(significant) > len(str(INT64_MAX)) else min(int(part), INT64_MAX)


def _no_number(part: str) -> AtcFailure:
    return failure("E19999", message=f"A gear's value {part!r} is not made of digits.")
