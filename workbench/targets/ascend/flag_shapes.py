"""The rules of --input_shape and of gears (ge v8.5.0 option_utils.cc:262-830, multi_batch_options.cc:582-720)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.errors import CompileError
from workbench.targets.ascend.flag_table import DYNAMIC

MOST_GEARS = 100
"""The documented limit on Atlas A2; v8.5.0 defines E10036 for it and does not raise it."""

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
    dynamic = next((name for name in DYNAMIC if name in values), None)
    if "input_shape" not in values:
        return
    shapes = _shapes(values["input_shape"], ranges=dynamic is None)
    free = [size == "-1" for dims in shapes.values() for size in dims]
    if dynamic is None:
        return
    value = values[dynamic]
    gears = [
        tuple(int(size) for size in gear.split(",") if size.strip())
        for gear in (value.rstrip(",").split(",") if dynamic == "dynamic_batch_size" else value.rstrip(";").split(";"))
    ]
    if not any(free):
        raise refusal(
            _NOTHING_VARIES[dynamic],
            dynamic,
            value,
            "no size in --input_shape is -1",
            "Write -1 for the sizes that vary.",
        )
    if dynamic == "dynamic_batch_size":
        inner = [name for name, dims in shapes.items() if "-1" in dims[1:]]
        if inner:
            raise refusal(
                "E10018", "input_shape", values["input_shape"], f"{inner[0]} has -1 behind its first size, and only "
                "batches vary", "Use --dynamic_dims.",
            )  # fmt: skip
    elif dynamic == "dynamic_image_size":
        if any(len(gear) != 2 for gear in gears):
            raise refusal("E10020", dynamic, value, "every gear is height,width", "Correct it.")
        if values.get("input_format", "NCHW") not in ("NCHW", "NHWC"):
            raise refusal("E10001", dynamic, value, "images are NCHW", "Use --input_format=NCHW.")
    else:
        wrong = next((gear for gear in gears if len(gear) != sum(free)), None)
        if wrong is not None:
            raise refusal(
                "E10003", dynamic, value, f"the gear {','.join(map(str, wrong))} has {len(wrong)} sizes, and "
                f"--input_shape has {sum(free)} that are -1", "Give one size for every -1 of every input, in order.",
            )  # fmt: skip
    _check_gears(dynamic, value, gears)


def _check_gears(name: str, value: str, gears: list[tuple[int, ...]]) -> None:
    if len(gears) < 2:
        raise refusal("E10035", name, value, "there is one gear, and at least two are needed", "Compile it static.")
    if len(gears) > MOST_GEARS:
        raise refusal(
            "E10036", name, value, f"{len(gears)} gears are more than the documented {MOST_GEARS}", "Name fewer."
        )
    if any(size < 1 for gear in gears for size in gear):
        raise refusal("E10038", name, value, "a size is not positive", "Correct it.")
    if len(set(gears)) != len(gears):
        raise refusal("E10039", name, value, "a gear is there twice", "Name each once.")


def _shapes(text: str, *, ranges: bool) -> dict[str, list[str]]:
    """Input → its sizes, as written; an index stands for a name that is left out."""
    found: dict[str, list[str]] = {}
    for index, entry in enumerate(part for part in text.split(";") if part.strip()):
        name, colon, dims = entry.rpartition(":")
        sizes = [size.strip() for size in dims.split(",")] if dims.strip() else []
        for size in sizes:
            _check_size(text, size, ranges=ranges)
        found[name.strip() if colon else str(index)] = sizes
    if not found:
        raise refusal("E10014", "input_shape", text, "it is empty", "Write such as input_ids:1,128.")
    return found


def _check_size(text: str, size: str, *, ranges: bool) -> None:
    if "~" in size and not ranges:
        raise refusal("E10040", "input_shape", text, "a range (~) and gears exclude each other", "Write -1.")
    if re.fullmatch(r"\d+~(\d+|-1)", size) or size == "-1":
        return
    if not re.fullmatch(r"-?\d+", size):
        # ATC reads a number first and then looks at the rest: what does not begin with one has another code
        code = "E10002" if re.match(r"-?\d", size) else "E10014"
        raise refusal(code, "input_shape", text, f"{size!r} is no size", "Write such as input_ids:1,128.")
    if abs(int(size)) >= 2**63:
        raise refusal("E10013", "input_shape", text, f"{size} is out of range", "Correct it.")
    if int(size) <= 0:
        raise refusal("E10011", "input_shape", text, f"{size} is not positive", "Sizes that vary are -1.")


def refusal(code: str, name: str, value: str, reason: str, remedy: str) -> CompileError:
    """The error for one flag, in the order fact, value, next step."""
    return CompileError(f"--{name}={value}: {reason} (ATC: {code}). {remedy}")
