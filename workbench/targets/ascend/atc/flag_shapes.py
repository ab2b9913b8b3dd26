"""The rules of --input_shape and of gears (ge v8.5.0 option_utils.cc:262-830, multi_batch_options.cc:582-720)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.targets.ascend.atc.flag_table import DYNAMIC
from workbench.targets.ascend.rules import too_few_gears
from workbench.values.errors import CompileError

MOST_GEARS = 100
"""The documented limit on Atlas A2; v8.5.0 defines E10036 for it and does not raise it."""

_MOST_DIGITS = 19
"""Of a number that fits in 64 bits; Python refuses to read thousands of digits at all."""

_NOTHING_VARIES: Mapping[str, str] = {
    "dynamic_batch_size": "E10031",
    "dynamic_image_size": "E10019",
    "dynamic_dims": "E10001",
}
"""Flag → the code when no size in --input_shape is -1."""


def check_shapes(values: Mapping[str, str]) -> None:
    """Refuse shapes and gears that do not fit together; the flags themselves are known and exclude each other.

    Raises:
        CompileError: with the vendor's code.
    """
    if "input_shape" not in values:
        return
    text = values["input_shape"]
    dynamic = next((name for name in DYNAMIC if name in values), None)
    if dynamic is None:
        if "~" in text or "-1" in text:
            _check_ranges(text)
        else:
            _sizes(text, gears=False)
        return
    if "~" in text:
        raise refusal("E10040", "input_shape", text, "a range (~) and gears exclude each other", "Write -1.")
    shapes = _sizes(text, gears=True)
    free = [size == -1 for dims in shapes.values() for size in dims]
    value = values[dynamic]
    if not any(free):
        raise refusal(
            _NOTHING_VARIES[dynamic],
            dynamic,
            value,
            "no size in --input_shape is -1",
            "Write -1 for the sizes that vary.",
        )
    if dynamic == "dynamic_batch_size":
        inner = [name for name, dims in shapes.items() if -1 in dims[1:]]
        if inner:
            raise refusal(
                "E10018", "input_shape", values["input_shape"], f"{inner[0]} has -1 behind its first size, and only "
                "batches vary", "Use --dynamic_dims.",
            )  # fmt: skip
    elif dynamic == "dynamic_image_size":
        if any(len(gear.split(",")) != 2 for gear in value.removesuffix(";").split(";")):
            raise refusal("E10020", dynamic, value, "every gear is height,width", "Correct it.")
        if values.get("input_format", "NCHW") not in ("NCHW", "NHWC"):
            raise refusal("E10001", dynamic, value, "images are NCHW", "Use --input_format=NCHW.")
    else:
        _check_counts(value, sum(free))
    _check_gears(dynamic, value, _gears(dynamic, value), sum(free))


def _check_counts(value: str, free: int) -> None:
    """ATC counts the parts of a gear of dims, empty ones too."""
    groups = value.removesuffix(";").split(";")
    if groups == [""]:
        raise refusal("E10001", "dynamic_dims", value, "there is no gear", "Name the gears.")
    wrong = next((group for group in groups if len(group.split(",")) != free), None)
    if wrong is not None:
        raise refusal(
            "E10003", "dynamic_dims", value, f"the gear {wrong} has {len(wrong.split(','))} sizes, and --input_shape "
            f"has {free} that are -1", "Give one size for every -1 of every input, in order.",
        )  # fmt: skip


def _gears(name: str, value: str) -> list[tuple[int, ...]]:
    """What the compiler reads: empty parts are no sizes, and empty groups no gears."""
    groups = value.split(",") if name == "dynamic_batch_size" else value.split(";")
    gears = [tuple(int(size.lstrip("0")[:_MOST_DIGITS] or 0) for size in group.split(",") if size) for group in groups]
    return [gear for gear in gears if gear]


def _check_gears(name: str, value: str, gears: list[tuple[int, ...]], free: int) -> None:
    if rule := too_few_gears(len(gears)):
        raise refusal(rule.code, name, value, rule.problem, rule.remedy)
    if len(gears) > MOST_GEARS:
        raise refusal(
            "E10036", name, value, f"{len(gears)} gears are more than the documented {MOST_GEARS}", "Name fewer."
        )
    sizes = {"dynamic_batch_size": 1, "dynamic_image_size": 2}.get(name, free)
    short = next((gear for gear in gears if len(gear) != sizes), None)
    if short is not None:
        raise refusal("E10037", name, value, f"the gear {short} has no {sizes} sizes", "Give every size of each gear.")
    if any(size < 1 for gear in gears for size in gear):
        raise refusal("E10038", name, value, "a size is not positive", "Correct it.")
    if len(set(gears)) != len(gears):
        raise refusal("E10039", name, value, "a gear is there twice", "Name each once.")


def _sizes(text: str, *, gears: bool) -> dict[str, list[int]]:
    """Input → its sizes, of a static shape or of one with gears. Every input has its name: v8.5.0 refuses the shapes
    by position that the manual shows (option_utils.cc:757)."""
    found: dict[str, list[int]] = {}
    for entry in text.split(";"):
        name, dims = _named(text, entry, "E10002")
        found.setdefault(name.strip(), [_size(text, size.strip(), gears=gears) for size in dims.split(",") if dims])
    return found


def _size(text: str, size: str, *, gears: bool) -> int:
    if not re.fullmatch(r"-?[0-9]+", size):
        # ATC reads a number first and then looks at the rest: what does not begin with one has another code
        code = "E10002" if "." in size or re.match(r"[+-]?[0-9]", size) else "E10014"
        raise refusal(code, "input_shape", text, f"{size!r} is no size", "Write such as input_ids:1,128.")
    if len(size.lstrip("-0")) > _MOST_DIGITS or abs(int(size)) >= 2**63:
        raise refusal("E10013", "input_shape", text, f"{size} is out of range", "Correct it.")
    if int(size) < -1 and gears:
        reason = f"{size} is neither a size nor -1, and no gear has a value for it"
        raise refusal("E10046", "input_shape", text, reason, "Write -1 for the sizes that vary.")
    if int(size) <= 0 and not gears:
        raise refusal("E10011", "input_shape", text, f"{size} is not positive", "Sizes that vary are -1.")
    return int(size)


def _check_ranges(text: str) -> None:
    """A shape that holds ~ or -1 without gears is a range, with rules and codes of its own."""
    for entry in text.split(";"):
        name, dims = _named(text, entry, "E10002" if ":" in text else "E10048")
        if not name:
            raise refusal("E10002", "input_shape", text, f"{entry!r} has no name", "Write such as input_ids:-1,128.")
        if re.search(r"[^0-9 ,~-]", dims):
            raise refusal("E10002", "input_shape", text, f"{dims!r} is no range", "Write such as input_ids:1~8,128.")
        for size in dims.split(",") if dims else ():
            ends = [end.strip() for end in size.split("~")]
            known = size.strip() == "-1" or (len(ends) < 3 and all(re.fullmatch(r"[0-9]+", end) for end in ends))
            if not known or max(len(end.lstrip("0")) for end in ends) > _MOST_DIGITS:
                raise refusal("E10048", "input_shape", text, f"{size!r} is no range", "Write such as 1~8, or -1.")


def _named(text: str, entry: str, code: str) -> tuple[str, str]:
    name, colon, dims = entry.rpartition(":")
    if not colon:
        reason = f"{entry!r} does not say whose shape it is" if entry.strip() else "an entry is empty"
        raise refusal(code, "input_shape", text, reason, "Write such as input_ids:1,128;mask:1,128.")
    return name, dims


def refusal(code: str, name: str, value: str, reason: str, remedy: str) -> CompileError:
    """The error for one flag, in the order fact, value, next step. Without a code ATC itself does not look."""
    said = f"ATC: {code}" if code else "the vendor's option pages; ATC does not check it"
    return CompileError(f"--{name}={value}: {reason} ({said}). {remedy}")
