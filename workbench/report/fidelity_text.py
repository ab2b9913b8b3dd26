"""A fidelity as a table: every way of computing against another, the worst first where shapes differ."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.report.words import interval
from workbench.values.evidence import Evidence
from workbench.values.fidelity import Agreement, Fidelity
from workbench.values.measurement import Estimate

_HEADS = ("way", "against", "samples", "worst cosine", "mean cosine", "max abs", "MAE", "top-1 equal", "drop")
_SHAPES = 12
"""Of a set's shapes the worst so many are listed."""


def fidelity_text(fidelity: Fidelity) -> str:
    """Lines for a terminal of some 140 columns; who has fewer sees them broken."""
    whole = [one for one in fidelity.paths if not one.shape]
    shapes = sorted((one for one in fidelity.paths if one.shape), key=lambda one: (one.worst_cosine, one.shape))
    lines = [f"{fidelity.candidate_id[:12]}: {fidelity.data}, {level_of(fidelity)}", ""]
    if any(one.emulated for one in fidelity.paths):
        lines[1:1] = ["EMULATED: rows with * were computed by an emulator, not by a real device."]
    lines += _table([*whole, *shapes[:_SHAPES]])
    if len(shapes) > _SHAPES:
        lines.append(f"… and {len(shapes) - _SHAPES} more shapes, none worse than these")
    scores = [line for one in whole if (line := _scores(one))]
    lines += ["", *scores] if scores else []
    notes = [
        f"{one.path} against {one.reference}: {count} values are NaN or infinite."
        for one in whole
        if (count := sum(each.not_finite for each in one.outputs))
    ]
    told = {one.path: f"{one.path}: {one.about}." for one in reversed(whole) if one.about}
    missing = [f"{path}: missing: {why}." for path, why in fidelity.missing.items()]
    return "\n".join([*lines, "", *notes, *reversed(told.values()), *missing]).rstrip() + "\n"


def level_of(fidelity: Fidelity) -> Evidence:
    """How well its figures are known."""
    if any(one.emulated for one in fidelity.paths):
        return "modelled"
    return "measured held-out" if " of holdout " in fidelity.data else "measured"


def _table(rows: Sequence[Agreement]) -> list[str]:
    cells = [list(_HEADS), *(_cells(one) for one in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _cells(one: Agreement) -> list[str]:
    way = f"  {one.shape}" if one.shape else one.path
    return [
        f"{way}{' *' if one.emulated else ''}",
        "" if one.shape else one.reference,
        str(one.samples),
        f"{one.worst_cosine:.6f}" if one.outputs else "",
        f"{one.mean_cosine:.6f}" if one.outputs else "",
        f"{one.max_abs:.3g}" if one.outputs else "",
        f"{one.mae:.3g}" if one.outputs else "",
        _share(one.top1),
        "" if one.drop is None else interval(one.drop.drop_pp, f" {one.drop.unit}", 2, signed=True),
    ]


def _share(top1: Estimate | None) -> str:
    return "" if top1 is None else f"{top1.value:.4f} [{top1.low:.4f}, {top1.high:.4f}]"


def _scores(one: Agreement) -> str:
    if not one.accuracy or one.reference != "float32":
        return ""
    words = ", ".join(f"{name} {ours:.4f} ({theirs:.4f})" for name, (ours, theirs) in one.accuracy.items())
    return f"{one.path} (and float32 over the same samples): {words}"
