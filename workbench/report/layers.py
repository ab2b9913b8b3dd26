"""What a comparison and a study of layers showed, with a compiled model's own operators: text and pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Group

from workbench.report.profile import short
from workbench.report.words import count_of, interval
from workbench.report.written.document import (
    Bar,
    Block,
    Cell,
    Commands,
    Document,
    Figure,
    Paragraph,
    Section,
    State,
    Table,
)
from workbench.report.written.drawing import bars_figure, errors
from workbench.report.written.files import html_text, on_terminal
from workbench.report.written.precision import bad_operator
from workbench.report.written.wording import Row, figure, table
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.layers import LayerStudy, Step, Unit

METRIC_WORDS = {
    "sqnr": "SQNR of the outputs",
    "kl": "KL divergence of the logits",
    "cosine": "cosine of the outputs",
    "first_order": "first-order estimate, from statistics alone",
}


def comparison_verdict(found: Comparison) -> tuple[str, ...]:
    """Where the error jumps, what is broken, and whether the outputs pass."""
    bounds, jump, first = str(found.limits), found.first_jump, found.first_beyond_limits
    if found.unscored:
        meaning = [f"What B's outputs mean cannot be said: {found.unscored}"]
    else:
        limits = ("" if m.limit is None else f" ({'' if m.kept else 'NOT '}within {m.limit})" for m in found.meaning)
        parts = [f"{m.metric} {m.a:.4g} against {m.b:.4g}{of}" for m, of in zip(found.meaning, limits, strict=True)]
        meaning = [f"By meaning, A against B: {'; '.join(parts)}."] if parts else []
    if found.equal:
        return ("All compared tensors are equal.", f"The outputs are within the limits ({bounds}).", *meaning)
    broken = next((row for row in found.rows if row.not_finite), None)
    if broken is not None:
        lines = [f"The first NaN or infinity: {_made_by(broken)}; {broken.not_finite} elements."]
    elif jump is not None:
        # a jump is told from rounding, not from the limits: INT8 that is good enough has some, and nothing is wrong
        what = "The error first jumps" if first or not found.passed else "More than rounding first comes in"
        lines = [f"{what} at {_made_by(jump)}: {jump.added_error:.2%} of the signal is added there."]
    else:
        lines = ["Nowhere does the error jump: what differs is the rounding of float32."]
    if rescaled := [row for row in found.rows if row.rescaled]:
        lines.append(
            f"{count_of(len(rescaled), 'tensor')} rescaled: balancing moved their scale into the weights that read "
            "them, which is no error."
        )
    if resized := [row for row in found.rows if row.resized]:
        lines.append(
            f"{count_of(len(resized), 'tensor')} have another length in B, in up to "
            f"{max(row.resized for row in resized)} of {count_of(found.batches, 'batch', 'batches')}: their length "
            f"depends on numbers that differ, from {_made_by(resized[0])} on. The part that both have is compared; "
            "keep what decides the length in float."
        )
    if found.by_meaning or found.unscored:
        bounds = "of what they mean; by their numbers alone: " + bounds
    lines += [*meaning, f"The outputs are {'' if found.passed else 'NOT '}within the limits ({bounds})."]
    if first is not None:
        lines.append(f"The first tensor beyond {'those' if found.by_meaning else 'them'}: {_made_by(first)}.")
    if not found.passed and found.limits.about.startswith("INT8"):
        lines.append(
            "What to do: keep the layers around the first jump in float (workbench sensitivity ranks them), calibrate "
            "with more or other samples, or let a sweep choose; --cosine and --error set other limits."
        )
    return tuple(lines)


def _made_by(row: TensorComparison) -> str:
    """The exporters' own names of tensors tell the node already."""
    named = row.tensor.startswith(row.node) or row.tensor in row.node
    return f"{row.tensor} ({row.op_type}{'' if named else f' {row.node}'})"


def _priced(study: LayerStudy) -> str:
    """What the times of units are a share of, where they come from and how well they are known."""
    prices = study.prices
    shape = f"batch {prices.batch}" + (f", length {prices.length}" if prices.length else "")
    call = f"{prices.call_us / 1000:.2f} ms at {shape}"
    if prices.by == "host":
        return f"the float call ({call}, one thread)"
    level = "modelled, on no real device" if prices.level == "modelled" else prices.level
    words = f"the float files' kernels on the device ({call}; {level})"
    if prices.unpriced:
        words += f"; not priced: {count_of(len(prices.unpriced), 'layer')} that cannot be INT8 there"
    return words


def _study_verdict(study: LayerStudy) -> list[str]:
    """Which units to keep in float and what that costs, against INT8 everywhere."""
    chosen = study.chosen
    if not study.steps:
        return [f"Nothing was measured: this ranks the {study.unit}s only."]
    if chosen is None:
        return [
            f"None of these candidates both meets the limits and cannot be told from float in accuracy. Try --unit "
            f"{'layer' if study.unit == 'group' else 'group'}, another --metric, or another recipe with --candidate."
        ]
    first = study.steps[0]
    before, after = (step.evaluation.measurement.latency for step in (first, chosen))
    speed = "" if after is None else f" {after.speedup.value:.2f} times as fast as float"
    if chosen.kept:
        nothing = "" if before is None or first.kept else f" (nothing kept: {before.speedup.value:.2f})"
        bought = sum(unit.damage_share for unit in study.units if unit.sensitivity.unit in chosen.units)
        lines = [f"Keep in float: {', '.join(chosen.units)}."]
        lines.append(f"It takes away {bought:.0%} of the noise, and is{speed}{nothing}.")
    else:
        lines = [f"Keep nothing in float: all layers of the recipe in INT8 cannot be told from float, and are{speed}."]
    if names := study.float_by_recipe:
        few = ", ".join(names[:2]) + (", …" if len(names) > 2 else "")
        lines.append(f"The recipe itself leaves {count_of(len(names), 'layer')} in float ({few}).")
    return lines


def signed_percent(share: float) -> str:
    """'+3.1%', and '0.0%' for what rounds to nothing."""
    text = f"{share:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


_WORST_SHOWN = 10
_ALONG = (
    "Error: |a - b| / |a| over all elements of a tensor. What a tensor carries already from the tensors it is computed "
    "from is no error of its own; 'added here' is what lies beyond, and a jump is a step of at least half the largest. "
    "Equal tensors are drawn at the lower edge."
)


def comparison_text(found: Comparison, *, every: bool = False) -> Group:
    """A table of the tensors that matter (all of them with `every`), then where the error jumps and the verdict."""
    rows = found.rows if every else shown_rows(found)
    notes = [f"in graph order; {count_of(found.batches, 'batch', 'batches')} of {found.data}"]
    if hidden := len(found.rows) - len(rows):
        notes.append(f"{hidden} more tensors {'agree' if found.equal else 'add less error'}; --all shows every tensor")
    if found.only_in_a:
        notes.append(f"{found.only_in_a} tensors of the first are not in the second")
    compared = _compared(rows, f"{found.a}  against  {found.b}", "; ".join(notes))
    verdict = (Paragraph(text=sentence) for sentence in comparison_verdict(found))
    return on_terminal([compared, *verdict, *bad_operator(found.device)])


def comparison_html(found: Comparison) -> str:
    """The verdict, the error of every compared tensor along the graph with its jumps marked, and the table."""
    kinds = {
        "jump": [row.jump for row in found.rows],
        "NaN or infinity": [bool(row.not_finite) for row in found.rows],
        "rescaled, no error": [row.rescaled for row in found.rows],
        "output": [row.is_output for row in found.rows],
    }
    chart = partial(
        errors,
        x_axis=f"{count_of(len(found.rows), 'tensor')} in graph order",
        y_axis="error |a - b| / |a|",
        values=tuple(row.relative_error for row in found.rows),
        marks={name: tuple(at for at, there in enumerate(each) if there) for name, each in kinds.items()},
    )
    jump = "" if found.first_jump is None else f"; first jump: {found.first_jump.tensor}"
    return _page(
        f"{found.a} against {found.b}",
        f"{count_of(found.batches, 'batch', 'batches')} of {found.data}; the first model is the reference.",
        {
            "Verdict": [_verdict(comparison_verdict(found), good=found.passed), *bad_operator(found.device)],
            "Error along the graph": [Figure(caption=f"Error of every tensor{jump}", draw=chart, note=_ALONG)],
            "Tensors": [_compared(found.rows, "All compared tensors, in graph order", "")],
        },
    )


def shown_rows(found: Comparison) -> list[TensorComparison]:
    """The outputs, the jumps, what is broken or first beyond a limit, and where most error is added."""
    if found.equal:
        return [row for row in found.rows if row.is_output]
    first = (found.first_jump, found.first_beyond_limits)
    worst = sorted(found.rows, key=lambda row: -row.added_error)[:_WORST_SHOWN]
    shown = {id(row) for row in (*first, *worst) if row is not None}
    broken = [row for row in found.rows if row.not_finite][:_WORST_SHOWN]
    shown.update(id(row) for row in (*broken, *(row for row in found.rows if row.is_output or row.jump)))
    return [row for row in found.rows if id(row) in shown]


def _compared(rows: Sequence[TensorComparison], caption: str, note: str) -> Table:
    heads = "tensor, what makes it|cosine|max abs|MAE|SQNR\ndB|error|added\nhere"
    jumps = (at for at, row in enumerate(rows) if row.jump)
    return table(caption, heads, map(_compared_row, rows), strong=jumps, note=note)


def _compared_row(row: TensorComparison) -> Row:
    marks = {
        f"other length in {row.resized}": row.resized,
        f"{row.differing} of {row.elements} differ": row.differing,
        f"{row.not_finite} NaN/inf": row.not_finite,
        "output": row.is_output,
        "JUMP": row.jump,
        "rescaled": row.rescaled,
    }
    words = "  ".join([row.tensor, row.op_type, *(word for word, there in marks.items() if there)])
    kept = row.within_limits or row.rescaled
    figures = (
        *(f"{row.cosine:.6f}", f"{row.max_abs:.2e}", f"{row.mae:.2e}"),
        "equal" if row.sqnr_db is None else f"{row.sqnr_db:.1f}",
        "" if row.not_finite else f"{row.relative_error:.2%}",
        f"{row.added_error:.2%}" if row.added_error and not row.not_finite else "",
    )
    state: State = "missed" if row.not_finite else "plain" if kept else "open"
    return Cell(text=words, state=state), *map(figure, figures)


def study_text(study: LayerStudy) -> Group:
    """The ranking with both sides of every unit, the measured steps and the answer."""
    sentences = [Paragraph(text=sentence) for sentence in _study_verdict(study)]
    return on_terminal([_units(study, study.units, study.unit), *_steps(study), *sentences])


def sensitivity_html(study: LayerStudy, recipe: Sequence[str] = ()) -> str:
    """The answer, the measured steps, and bars with both sides of every unit: its noise in INT8, its time in float.

    Args:
        recipe: lines that say how to run the answer.
    """
    kinds = {"group": study.groups, "layer": study.layers}
    kinds = kinds if study.unit == "group" else dict(reversed(kinds.items()))
    trusted = (
        "The float and the INT8 files were profiled whole, fusions included, and their difference shared among the "
        "layers; keeping a single one in float may fuse otherwise, so the right side is an estimate"
    )
    if study.prices.by == "host":
        trusted = "Kernels are timed one layer at a time, so the right side is an estimate"
    measured = "; the table above is measured" if study.steps else ""
    how = Paragraph(
        text="Bought: the share of all quantization noise at the output that goes away when this unit stays in float. "
        f"Paid: the extra time of its kernels in float, as a share of {_priced(study)}; below zero float is the "
        f"faster one. Good candidates for float buy much and cost little. {trusted}{measured}.",
        kind="note",
    )
    answer = _verdict(_study_verdict(study), good=study.chosen is not None)
    sections: dict[str, list[Block]] = {
        "The answer": [answer, *([Commands(lines=tuple(recipe))] if recipe else []), *_steps(study), how]
    }
    for kind, units in kinds.items():
        bought, paid = "bought: % of all noise taken away", "paid: extra time in float, % of the float call"
        shares = ((bought, [u.damage_share for u in units]), (paid, [u.call_share for u in units]))
        names = [short(unit.sensitivity.unit) for unit in units]
        drawn = (
            (axis, [Bar(label=name, value=100 * share) for name, share in zip(names, of, strict=True)])
            for axis, of in shares
        )
        sections[f"By {kind}, most sensitive first"] = [
            *(bars_figure(axis, axis, bars, digits=1) for axis, bars in drawn),
            _units(study, units, kind),
        ]
    return _page(
        f"{study.experiment}: which layers to keep in float, and what it costs",
        f"Every group and layer was quantized alone over {study.samples} calibration samples, and timed in float and "
        f"in INT8. Ranked by: {METRIC_WORDS[study.metric]}.",
        sections,
    )


def _units(study: LayerStudy, units: Sequence[Unit], kind: str) -> Table:
    def row(unit: Unit) -> Row:
        s, kl = unit.sensitivity, unit.sensitivity.kl
        times = (f"{us:.1f}" if us < 100 else f"{us:.0f}" for us in (unit.float_us, unit.int8_us))  # few on a device
        figures = (
            *(f"{s.sqnr_db:.1f}", f"{s.first_order_db:.1f}", f"{s.cosine:.5f}"),
            *("" if kl is None else f"{kl:.0e}", f"{unit.damage_share:.1%}", f"{unit.macs_share:.1%}"),
            *(*times, signed_percent(unit.call_share)),
        )
        return s.unit, *map(figure, figures)

    return table(
        f"{study.experiment}: {kind}s, most sensitive first (by {study.metric})",
        f"{kind}|SQNR\ndB|1st order\ndB|cosine|KL|bought|MACs|float\nµs|INT8\nµs|paid",
        map(row, units),
        note="SQNR, cosine, KL: of the model's outputs with only this one in INT8. bought: share of all noise that "
        f"goes when it stays in float. paid: extra time of its kernels in float, as a share of {_priced(study)}",
    )


def _steps(study: LayerStudy) -> list[Table]:
    if not study.steps:
        return []
    return [
        table(
            f"measured: INT8 with the most sensitive {study.unit}s kept in float",
            "kept in float|accuracy|loss, pp\n[95 %]|speed-up over float\n[95 %]|",
            (_step(study, step) for step in study.steps),
            strong=(at for at, step in enumerate(study.steps) if step is study.chosen),
            note="accuracy on the validation split and its loss against the float model, sample by sample; 'enough' is "
            "the first that meets the limits of the experiment and cannot be told from float",
        )
    ]


def _step(study: LayerStudy, step: Step) -> Row:
    kept = "nothing" if not step.kept else f"{step.kept}: {', '.join(step.units)}"
    accuracy, latency = step.evaluation.measurement.accuracy, step.evaluation.measurement.latency
    if accuracy is None or latency is None or accuracy.comparison is None:
        failure = step.evaluation.failure
        return kept, *map(figure, ("", "", "")), "failed" if failure is None else failure.message
    drop = accuracy.comparison.drop_pp
    worth = "loses accuracy" if drop.low > 0 else ""
    worth = "enough" if step is study.chosen else worth if step.feasible else "over a limit"
    figures = interval(drop, "", 2, signed=True), interval(latency.speedup, "", 2)
    return kept, *map(figure, (f"{accuracy.values[accuracy.primary]:.4f}", *figures)), worth


def _verdict(sentences: Sequence[str], *, good: bool) -> Paragraph:
    return Paragraph(text="\n".join(sentences), kind="verdict", state="met" if good else "missed")


def _page(title: str, about: str, sections: dict[str, list[Block]]) -> str:
    """One file that loads nothing."""
    parts = tuple(Section(title=name, blocks=tuple(blocks)) for name, blocks in sections.items())
    return html_text(Document(language="en", title=title, subtitle=about, facts=(), sections=parts))
