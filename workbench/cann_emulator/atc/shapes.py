"""Which shapes a model is compiled for: one, or a list of gears (atc.md §1 step 11, §3.3, §13a).

A text of --input_shape is static, one with gears (a dynamic flag fills its -1), or a range, which is judged and not
compiled. Each of the three is read by rules of its own (ge v8.5.0 compiler/api/aclgrph/option_utils.cc:262-830), and of
a name written twice the first counts. Every shape has its input's name: the manual also shows shapes by position
(`1,128;1,128`), which v8.5.0 refuses. Texts are judged with the flags, ranks and names once the model is parsed
(api/atc/omg.cc), and gears when the compile begins (compiler/graph/preprocess/multi_batch_options.cc). What is wrong
is an AtcFailure with the code that stands there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from onnx import TypeProto

from workbench.cann_emulator.atc.failure import AtcFailure, failure, inner_error, invalid
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.om import GearKind

Shape = tuple[int, ...]
Options = Mapping[str, str]

_GEAR_FLAGS: tuple[GearKind, ...] = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
_IMAGE_AXES = {"NCHW": (2, 3), "NHWC": (1, 2)}
_INT64_MAX = 2**63 - 1
_LEAST_GEARS = 2
_SHAPE_SAMPLE, _RANGE_SAMPLE = '"input_name1:n1,c1,h1,w1"', '"input_name1:n1~n2,c1,h1,w1"'
_BRACKET_SAMPLE = '"input_name1:[n1~n2,c1,h1,w1]"'


def gear_flag(options: Options) -> GearKind:
    """The dynamic flag that is given, "" for none; at most one passes the flag check."""
    return next((flag for flag in _GEAR_FLAGS if options.get(flag)), "")


def _asks_for_range(options: Options) -> bool:
    """By --input_shape_range, or by the letters of --input_shape alone, so that an input's name may decide it."""
    text = options.get("input_shape", "")
    return bool(options.get("input_shape_range")) or (not gear_flag(options) and ("~" in text or "-1" in text))


def check_shape_flags(options: Options) -> None:
    """What is judged of the shape flags before the engines start, in ATC's order. A static --input_shape is read later,
    and so is a range by position. --input_hint_shape is not looked at."""
    flag, text = gear_flag(options), options.get("input_shape", "")
    brackets = options.get("input_shape_range", "")
    if flag and "~" in text and not brackets:
        raise failure("E10040")
    if sum(bool(options.get(name)) for name in (*_GEAR_FLAGS, "input_shape_range")) > 1:
        raise failure("E10009")
    if not flag:
        if _asks_for_range(options) and ":" in (brackets or text):
            _check_ranges(options)
        return
    if not text:
        raise failure("E10004", parameter="input_shape")
    shapes = parse_shapes(options)
    _check_open_axes(shapes, options)
    _check_gear_text(flag, options[flag], sum(shape.count(-1) for shape in shapes.values()))


def parse_shapes(options: Options) -> dict[str, Shape]:
    """The shapes of a static --input_shape, or of one with gears, where any number stands; `name:` alone is a scalar.
    Empty for a range, and where nothing is said."""
    text, gears = options.get("input_shape", ""), bool(gear_flag(options))
    shapes: dict[str, Shape] = {}
    for entry in text.split(";") if text and not _asks_for_range(options) else ():
        name, colon, dims = entry.rpartition(":")
        if not colon:
            raise _bad_shape(entry, "an entry has a name and a value, with a colon between them")
        sizes = tuple(_size(dim.strip(), entry, gears=gears) for dim in dims.split(",")) if dims else ()
        shapes.setdefault(name.strip(), sizes)
    return shapes


def _check_ranges(options: Options) -> None:
    """The form of a range, in brackets by --input_shape_range."""
    brackets = options.get("input_shape_range", "")
    for entry in (brackets or options["input_shape"]).split(";"):
        name, colon, dims = entry.rpartition(":")
        if brackets and (not colon or not re.fullmatch(r"\[[^][]*\]", dims)):
            raise _bad_range(entry, "an entry is a name and its sizes in one pair of square brackets")
        if not brackets and (not name or re.search(r"[^0-9 ,~-]", dims)):
            reason = "an entry is a name and its sizes, and a range holds digits, commas, ~ and -1 only"
            raise _bad_shape(entry, reason, _RANGE_SAMPLE)
        for dim in dims.strip("[]").split(",") if dims else ():
            ends = [end.strip() for end in dim.split("~")]
            if not all(re.fullmatch(r"[+-]?\d{1,19}", end, re.ASCII) for end in ends):
                raise failure("E10048", shape_range=dim, reason="it cannot be read as a number", sample='"16"')
            if len(ends) > 2 or (len(ends) == 2 and any(end.startswith("-") for end in ends)):
                raise _bad_range(dims, "a range is two sizes with one ~ between them")


def _size(dim: str, entry: str, *, gears: bool) -> int:
    start = re.match(r"[+-]?\d+", dim, re.ASCII)
    if start is None:
        raise failure("E10014", parameter="input_shape", value=dim)
    value = _int64(start.group())
    if value is None:
        raise failure("E10013", parameter="input_shape", value=dim)
    if not re.fullmatch(r"-?\d+", dim, re.ASCII):
        raise _bad_shape(entry, "a dimension is made of digits")
    if value <= 0 and not gears:
        raise failure("E10011", shape=entry, result=str(value))
    return value


def _int64(digits: str) -> int | None:
    """The number, None where it does not fit; Python refuses to read thousands of digits at all."""
    value = int(digits) if len(digits) <= 20 else _INT64_MAX + 1
    return value if -_INT64_MAX <= value <= _INT64_MAX else None


def _bad_shape(entry: str, reason: str, sample: str = _SHAPE_SAMPLE) -> AtcFailure:
    return failure("E10002", shape=entry, reason=reason, sample=sample)


def _bad_range(text: str, reason: str) -> AtcFailure:
    return failure("E10048", shape_range=text, reason=reason, sample=_BRACKET_SAMPLE)


# --- lists of gears ---


def _check_open_axes(shapes: Mapping[str, Shape], options: Options) -> None:
    """That the open axes of these inputs are those that the dynamic flag fills."""
    flag, layout = gear_flag(options), options.get("input_format") or "NCHW"
    is_open = False
    for _, shape in sorted(shapes.items()):  # the order of a C++ map
        axes = [axis for axis, size in enumerate(shape) if size < 0]
        if flag == "dynamic_batch_size":
            if not shape:
                raise failure("E10012")
            if shape[0] == -1 and len(axes) > 1:
                raise failure("E10018", index=str(axes[1]), shape=str(shape[axes[1]]))
            is_open = is_open or shape[0] == -1
            continue
        if flag == "dynamic_image_size" and -1 in shape:
            if len(shape) == 4 and layout not in _IMAGE_AXES:
                reason = "with --dynamic_image_size it is NCHW or NHWC"
                raise failure("E10003", parameter="input_format", value=layout, reason=reason)
            if len(shape) != 4 or tuple(axis for axis in axes if shape[axis] == -1) != _IMAGE_AXES[layout]:
                raise failure("E10019")
        is_open = is_open or -1 in shape
    if not is_open:
        if flag == "dynamic_dims":
            raise invalid("input_shape's dynamic dim num", "0", "with --dynamic_dims at least one dimension is -1")
        raise failure("E10031" if flag == "dynamic_batch_size" else "E10019")


def _check_gear_text(flag: GearKind, text: str, open_axes: int) -> None:
    """
    Args:
        open_axes: number of -1 over all inputs, which every gear of dims must fill. A part counts although it is empty.
    """
    refused, words = {
        "dynamic_batch_size": (r"[^0-9,]", "digits and commas"),
        "dynamic_image_size": (r"[^0-9,; ]", "digits, commas, blanks and semicolons"),
    }.get(flag, (r"(?!)", ""))
    if re.search(refused, text):
        raise failure("E10003", parameter=flag, value=text, reason=f"it may hold {words} only")
    groups = [group.split(",") for group in text.removesuffix(";").split(";")]
    if flag == "dynamic_image_size" and any(len(parts) != 2 for parts in groups):
        raise failure("E10020", dynamic_image_size=text)
    if flag == "dynamic_dims" and text == ";":
        raise invalid(flag, "", "it is empty")
    for parts in groups if flag == "dynamic_dims" else ():
        if len(parts) != open_axes:
            reason = f"every gear gives one value for each -1 in the input shape: {open_axes}, not {len(parts)}"
            raise failure("E10003", parameter=flag, value=text, reason=reason)
        for part in parts:
            if re.search(r"[^0-9]", part):
                raise invalid(flag, part, "a value of a gear is a positive integer")


def _gears(options: Options) -> list[Shape]:
    """The values of every gear, in the order written. Empty parts are no values, and empty groups no gears; a number
    that does not fit becomes the greatest, as strtol gives it."""
    flag = gear_flag(options)
    gears = []
    for group in options.get(flag, "").split("," if flag == "dynamic_batch_size" else ";"):
        parts = [part for part in group.split(",") if part]
        if bad := next((part for part in parts if not part.isdigit()), None):
            # a blank: only that of an image size comes so far
            raise failure("E19999", message=f"A gear's value {bad!r} is not made of digits.")
        values = [_int64(part) for part in parts]
        gears += [tuple(_INT64_MAX if value is None else value for value in values)] if parts else []
    if not gears:
        return []
    # E10038, a negative value, is defined and out of reach: a gear holds digits only
    if len(gears) < _LEAST_GEARS:
        raise failure("E10035", shapesize=str(len(gears)), minshapesize=str(_LEAST_GEARS))
    for gear in gears:
        if len(gear) != len(gears[0]):
            raise failure("E10037", shapesize1=str(len(gears[0])), shapesize2=str(len(gear)))
    if len(set(gears)) != len(gears):
        raise failure("E10039")
    return gears


# --- held against what the model has, and the shapes to compile for ---


def _declared(kind: TypeProto) -> Shape:
    """The file's shape of an input, -1 where an axis is open; () where it says nothing, as for a scalar."""
    return tuple(max(int(d.dim_value), -1) if d.HasField("dim_value") else -1 for d in kind.tensor_type.shape.dim)


def check_ranks(parsed: Parsed, asked: Mapping[str, Shape]) -> None:
    """A static shape, or one with gears, has as many sizes as the model's input; the sizes themselves may differ. An
    input that the model gives no sizes takes any shape (ge v8.5.0 parser/parser/onnx/onnx_data_parser.cc:130)."""
    for value in parsed.inputs:
        declared = _declared(value.type)
        if value.name in asked and declared and len(asked[value.name]) != len(declared):
            text = f"The input {value.name} has {len(declared)} dimensions, not {len(asked[value.name])}."
            raise AtcFailure(inner_error(text), inner_error("The graph cannot be made of the model."))


def input_shapes(parsed: Parsed, asked: Mapping[str, Shape], options: Options) -> dict[str, Shape]:
    """Input → its shape, -1 where it is open: what was asked for (`parse_shapes`), else what the file says. Every input
    has its shape if it is to be static, and every shape its input (omg.cc:86-135)."""
    declared = {value.name: _declared(value.type) for value in parsed.inputs}
    if _asks_for_range(options):
        raise failure("E10055", reason="this atc is emulated and compiles no shape ranges; give one shape, or gears")
    for name, shape in declared.items() if not gear_flag(options) else ():
        if any(size < 0 for size in asked.get(name, shape)):
            reason = "the model has shapes with -1: give --input_shape for each of its inputs"
            raise invalid("input_shape", "NULL", reason)
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in asked:
        if name not in declared:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_shape")
    return {name: tuple(max(size, -1) for size in asked.get(name, shape)) for name, shape in declared.items()}


Gears = list[tuple[Shape, Mapping[str, Shape]]]
"""(values of the open axes, input → shape at them); one for a static model, otherwise in the order of the command line
(atc.md §13a)."""


def plan_shapes(parsed: Parsed, boundary: Mapping[str, Shape], asked: Sequence[str], options: Options) -> Gears:
    """The shapes to compile for.

    Args:
        boundary: of `input_shapes`.
        asked: inputs that --input_shape names, in its order.
    """
    opened = {name: shape for name, shape in boundary.items() if -1 in shape}
    flag = gear_flag(options)
    if parsed.quantized and (flag or opened):
        # atctool_0040, General Restrictions: conversion fails; with which code is not established [inferred]
        raise failure("E10055", reason="a quantized model cannot be converted with dynamic shapes")
    plan: Gears = [((), boundary)]
    if gears := _gears(options):
        if unasked := {name: shape for name, shape in opened.items() if name not in asked}:
            if flag == "dynamic_dims":
                reason = "every input with an open axis has its shape in --input_shape"
                raise invalid(flag, next(iter(unasked)), reason)
            _check_open_axes(unasked, options)
        filled = [_filled(gear, [*asked, *unasked], boundary) for gear in gears]
        keys = gears
        if flag == "dynamic_dims":  # a gear is told in the order of the model's inputs
            sizes = [[pair for name, d in boundary.items() for pair in zip(at[name], d, strict=True)] for at in filled]
            keys = [tuple(size for size, declared in pairs if declared < 0) for pairs in sizes]
        plan = list(zip(keys, filled, strict=True))
    elif opened:  # a dynamic flag whose parts are all empty makes no gears [inferred: then the axes stay open]
        raise failure("E10055", reason="this atc is emulated and compiles no open shapes; give gears")
    for _, at in plan:
        for name, shape in at.items():
            if prod(shape) > _INT64_MAX:  # the compile fails; its code is not established [inferred]
                raise failure("E19999", message=f"The input {name} of shape {list(shape)} is too large.")
    return plan


def _filled(gear: Shape, order: Sequence[str], boundary: Mapping[str, Shape]) -> dict[str, Shape]:
    """Input → its shape at a gear. Values are dealt out in the order of --input_shape, except that an input with as
    many open axes as there are values takes them all."""
    filled = dict(boundary)
    start = 0
    for name in order:
        shape = boundary[name]
        count, text = shape.count(-1), ",".join(map(str, shape))
        if count > len(gear):
            raise failure("E10046", name=name, shape=text)
        if 0 < count < len(gear) < start + count:
            raise failure("E10045", name=name, shape=text)
        values = list(gear if count == len(gear) else gear[start : start + count])
        if len(values) != count:
            raise failure("E19999", message=f"{len(values)} values of a gear do not fit the input {name}, {shape}.")
        filled[name] = tuple(values.pop(0) if size < 0 else size for size in shape)
        start += count
    return filled
