"""What ATC of CANN 8.5.0 and its manual forbid together, said once for a candidate's settings and for a set of flags.

Settings (`AscendCompile.check`) are refused before any work, flags (`atc.flags`) before ATC is started; both come to an
`Asked`, and each says in its own words where the broken rule stands.
"""

from __future__ import annotations

from dataclasses import dataclass

MIXED_MODES = frozenset(
    {
        "allow_mix_precision",
        "allow_mix_precision_fp16",
        "allow_mix_precision_bf16",
        "mixed_float16",
        "mixed_bfloat16",
    }
)
"""Those whose operators follow white, black and grey lists, so that --modify_mixlist means something."""

KEEPING_MODES = frozenset({"must_keep_origin_dtype", "origin"})
"""Every operator keeps the graph's type; --keep_dtype is void (option page of keep_dtype, 8.5.0)."""

INT8_MODES = frozenset({"force_fp16", "fp16", "allow_fp32_to_fp16", *MIXED_MODES})
"""Those a quantized deploy model may be compiled with: with the others neither its speed nor its precision is
obtained (ATC manual, General Restrictions, 9.0 to 9.2; the 8.5 page has the same section)."""

_RESTRICTIONS = "(ATC manual, General Restrictions)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of ATC.

    Attributes:
        mode: precision mode, whichever of its two flags it is a value of.
        dynamic: one file for several shapes.
        given: of modify_mixlist, keep_dtype, op_precision_mode and optypelist_for_implmode those that say something.
        kernels: op_select_implmode; '' where it is not given.
        precise: op_precision_mode wants high_precision of some type.
    """

    mode: str
    quantized: bool
    dynamic: bool
    given: frozenset[str]
    kernels: str = ""
    precise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that does not hold.

    Attributes:
        about: name of the flag and setting; 'precision' for the mode, 'shapes' for what makes them dynamic.
        problem: what is wrong, without a full stop.
        code: ATC's own; empty where it ignores what is asked, or does something else in silence.
    """

    about: str
    problem: str
    remedy: str
    code: str = ""


def unsupported_mode(mode: str) -> Broken | None:
    """hif8: ATC's own check lets it pass on every chip (cmd_flag_info.cc:50-52; option page PRECISION_MODE_V2)."""
    if "hif8" not in mode:
        return None
    problem = f"{mode!r} is not supported by CANN 8.5, although ATC's own check lets it pass"
    return Broken(about="precision", problem=problem, remedy="Choose another.")


def too_few_gears(count: int) -> Broken | None:
    if count >= 2:
        return None
    return Broken(
        about="shapes",
        problem="there is one gear, and at least two are needed",
        remedy="Compile it static.",
        code="E10035",
    )


def broken(asked: Asked) -> Broken | None:
    """The first rule that does not hold, in ATC's order: lists, types, kernels, and what a quantized model forbids."""
    mode, given = asked.mode, asked.given
    if "modify_mixlist" in given and mode not in MIXED_MODES:
        return Broken(
            about="modify_mixlist",
            problem=f"means nothing with precision {mode}",
            remedy=f"Modes that follow lists: {', '.join(sorted(MIXED_MODES))}.",
            code="E10001",
        )
    if "keep_dtype" in given and mode in KEEPING_MODES:
        problem = f"is void with precision {mode}, which keeps every type"
        return Broken(about="keep_dtype", problem=problem, remedy="Leave it out.")
    if "optypelist_for_implmode" in given and not asked.kernels:
        return Broken(
            about="optypelist_for_implmode",
            problem="types without a mode: op_select_implmode is missing",
            remedy="Add it.",
            code="E10001",
        )
    if "op_precision_mode" in given and asked.kernels:
        problem = "is void beside op_precision_mode (ATC ignores it)"
        return Broken(about="op_select_implmode", problem=problem, remedy="Use one of the two.")
    return _broken_by_int8(asked) if asked.quantized else None


def _broken_by_int8(asked: Asked) -> Broken | None:
    if asked.dynamic:
        return Broken(
            about="shapes",
            problem=f"a quantized model cannot be compiled for dynamic shapes {_RESTRICTIONS}",
            remedy="Compile one static file for each batch and bin.",
        )
    if asked.mode not in INT8_MODES:
        return Broken(
            about="precision",
            problem=f"{asked.mode} with a quantized model gives neither the speed nor the precision {_RESTRICTIONS}",
            remedy=f"With INT8: {', '.join(sorted(INT8_MODES))}.",
        )
    if asked.precise or asked.kernels.startswith("high_precision"):
        return Broken(
            about="op_precision_mode" if asked.precise else "op_select_implmode",
            problem=f"high_precision kernels must not be combined with a quantized model {_RESTRICTIONS}",
            remedy="Use high_performance, or leave it out.",
        )
    return None
