"""What a comparison, a study of layers and a compiled model's own operators showed: sentences, rows, terminal text."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from workbench.report.words import count_of, interval
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.device_findings import DeviceFindings, FirstBad
from workbench.study.layers import LayerStudy, Step, Unit

_SHOWN_NODES = 4
_LARGEST_HALF = 65504


def device_words(found: DeviceFindings) -> tuple[str, ...]:
    """Lines behind a comparison's verdict."""
    lines = []
    if found.emulated:
        lines.append("EMULATED: the values are computed by an emulator of the device, not measured on one.")
    lines.append(f"{found.operators} operators ran; the device's own files are in {found.folder}.")
    if found.first_bad is None:
        lines.append("No operator's result is beyond the limits.")
    else:
        lines += _first_bad(found.first_bad)
    return tuple(lines)


def _first_bad(bad: FirstBad) -> list[str]:
    wrong = f"{bad.not_finite} elements are NaN or infinite" if bad.not_finite else f"error {bad.relative_error:.2%}"
    lines = [
        "",
        f"First bad operator: {bad.operator} ({bad.op_type}, {bad.types})",
        f"  covers {_listed(bad.nodes)}",
        f"  its result {bad.tensor}: {wrong}; largest value of the float model {bad.magnitude:.4g}",
        f"  cause: {_cause(bad)}",
    ]
    if bad.mends:
        lines.append("  what mends it (then compile again, and compare again):")
    for mend in bad.mends:
        lines.append(f"    {mend.setting}: {mend.what}")
        lines += [f"      {line}" for line in mend.lines]
    lines.append("  inputs and outputs as NPY:")
    lines += [f"    {file}" for file in bad.files]
    return lines


def _cause(bad: FirstBad) -> str:
    if bad.cause == "integers":
        return _integers(bad)
    if bad.cause == "rounding":
        return f"rounding of its types ({bad.types}), its own or of what it was given"
    if bad.magnitude > _LARGEST_HALF:
        return f"float16 ends at {_LARGEST_HALF}, and the float model has larger numbers here"
    return f"float16 ends at {_LARGEST_HALF}: something inside the operator, or in what it reads, is beyond"


def _integers(bad: FirstBad) -> str:
    if not bad.scales:
        return (
            "its INT8 layers: no scale of an activation loses these values, so their weights or what they are given do"
        )
    scale = bad.scales[0]
    layers = _listed(tuple(dict.fromkeys(each.layer for each in bad.scales)))
    return (
        f"the INT8 scale of {scale.tensor}, which {layers} computes with: it holds {scale.low:.4g} to {scale.high:.4g} "
        f"and the float model reaches {scale.magnitude:.4g} ({scale.relative_error:.1%} of the signal is lost)"
    )


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "no node of the float model"
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    return ", ".join(names[:_SHOWN_NODES]) + more


METRIC_WORDS = {
    "sqnr": "SQNR of the outputs",
    "kl": "KL divergence of the logits",
    "cosine": "cosine of the outputs",
    "first_order": "first-order estimate, from statistics alone",
}


def comparison_verdict(found: Comparison) -> tuple[str, ...]:
    """Where the error jumps, what is broken, and whether the outputs pass."""
    bounds = str(found.limits)
    if found.equal:
        return ("All compared tensors are equal.", f"The outputs are within the limits ({bounds}).", *_meaning(found))
    lines = []
    broken = next((row for row in found.rows if row.not_finite), None)
    jump = found.first_jump
    if broken is not None:
        lines.append(f"The first NaN or infinity: {_made_by(broken)}; {broken.not_finite} elements.")
    elif jump is not None:
        # a jump is told from rounding, not from the limits: INT8 that is good enough has some, and nothing is wrong
        what = (
            "The error first jumps"
            if found.first_beyond_limits or not found.passed
            else "More than rounding first comes in"
        )
        lines.append(f"{what} at {_made_by(jump)}: {jump.added_error:.2%} of the signal is added there.")
    else:
        lines.append("Nowhere does the error jump: what differs is the rounding of float32.")
    if rescaled := [row for row in found.rows if row.rescaled]:
        lines.append(
            f"{count_of(len(rescaled), 'tensor')} rescaled: balancing moved their scale into the weights that read "
            "them, which is no error."
        )
    lines += _resized(found) + list(_meaning(found))
    first = found.first_beyond_limits
    if found.by_meaning or found.unscored:
        bounds = "of what they mean; by their numbers alone: " + bounds
    if found.passed:
        lines.append(f"The outputs are within the limits ({bounds}).")
    else:
        lines.append(f"The outputs are NOT within the limits ({bounds}).")
    if first is not None:
        lines.append(f"The first tensor beyond {'those' if found.by_meaning else 'them'}: {_made_by(first)}.")
    if not found.passed and found.limits.about.startswith("INT8"):
        lines.append(
            "What to do: keep the layers around the first jump in float (workbench sensitivity ranks them), calibrate "
            "with more or other samples, or let a sweep choose; --cosine and --error set other limits."
        )
    return tuple(lines)


def _meaning(found: Comparison) -> tuple[str, ...]:
    """Sentences of what the outputs mean."""
    if found.unscored:
        return (f"What B's outputs mean cannot be said: {found.unscored}",)
    if not found.meaning:
        return ()
    parts = []
    for one in found.meaning:
        limit = "" if one.limit is None else f" ({'' if one.kept else 'NOT '}within {one.limit})"
        parts.append(f"{one.metric} {one.a:.4g} against {one.b:.4g}{limit}")
    return (f"By meaning, A against B: {'; '.join(parts)}.",)


def _resized(found: Comparison) -> list[str]:
    rows = [row for row in found.rows if row.resized]
    if not rows:
        return []
    worst = max(row.resized for row in rows)
    return [
        f"{count_of(len(rows), 'tensor')} have another length in B, in up to {worst} of "
        f"{count_of(found.batches, 'batch', 'batches')}: their length depends on numbers that differ, from "
        f"{_made_by(rows[0])} on. The part that both have is compared; keep what decides the length in float."
    ]


def _made_by(row: TensorComparison) -> str:
    """The exporters' own names of tensors tell the node already."""
    named = row.tensor.startswith(row.node) or row.tensor in row.node
    return f"{row.tensor} ({row.op_type}{'' if named else f' {row.node}'})"


STEPS_NOTE = (
    "accuracy on the validation split and its drop against the float model, sample by sample; 'enough' is the first "
    "that meets the limits of the experiment and cannot be told from float"
)


def priced_words(study: LayerStudy) -> str:
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


def estimate_words(study: LayerStudy) -> str:
    """How far the price of one unit may be trusted."""
    if study.prices.by == "host":
        return "Kernels are timed one layer at a time, so the right side is an estimate"
    return (
        "The float and the INT8 files were profiled whole, fusions included, and their difference shared among the "
        "layers; keeping a single one in float may fuse otherwise, so the right side is an estimate"
    )


def study_verdict(study: LayerStudy) -> tuple[str, ...]:
    """Which units to keep in float and what that costs, against INT8 everywhere."""
    chosen = study.chosen
    if not study.steps:
        return (f"Nothing was measured: this ranks the {study.unit}s only.",)
    if chosen is None:
        return (
            f"None of these candidates both meets the limits and cannot be told from float in accuracy. Try --unit "
            f"{'layer' if study.unit == 'group' else 'group'}, another --metric, or another recipe with --candidate.",
        )
    first = study.steps[0]
    gains = [step.evaluation.measurement.latency for step in (first, chosen)]
    speed = "" if gains[1] is None else f" {gains[1].speedup.value:.2f} times as fast as float"
    if not chosen.kept:
        verdict = f"Keep nothing in float: all layers of the recipe in INT8 cannot be told from float, and are{speed}."
        return (verdict, *_by_recipe(study))
    before = "" if gains[0] is None or first.kept else f" (nothing kept: {gains[0].speedup.value:.2f})"
    bought = sum(unit.damage_share for unit in study.units if unit.sensitivity.unit in chosen.units)
    return (
        f"Keep in float: {', '.join(chosen.units)}.",
        f"It takes away {bought:.0%} of the noise, and is{speed}{before}.",
        *_by_recipe(study),
    )


def _by_recipe(study: LayerStudy) -> tuple[str, ...]:
    names = study.float_by_recipe
    if not names:
        return ()
    few = ", ".join(names[:2]) + (", …" if len(names) > 2 else "")
    return (f"The recipe itself leaves {count_of(len(names), 'layer')} in float ({few}).",)


def microseconds(value: float) -> str:
    """A decimal where it is a few, as on a device."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def signed_percent(share: float) -> str:
    """'+3.1%', and '0.0%' for what rounds to nothing."""
    text = f"{share:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


_WORST_SHOWN = 10


def comparison_text(found: Comparison, *, every: bool = False) -> Group:
    """A table of the tensors that matter (all of them with `every`), then where the error jumps and the verdict."""
    rows = found.rows if every else shown_rows(found)
    table = Table(
        title=f"{found.a}  against  {found.b}",
        caption=f"in graph order; {count_of(found.batches, 'batch', 'batches')} of {found.data}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("tensor, what makes it", overflow="fold", ratio=1)
    for name in ("cosine", "max abs", "MAE", "SQNR\ndB", "error", "added\nhere"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_comparison_row(row))
    lines = [table]
    hidden = len(found.rows) - len(rows)
    notes = []
    if hidden:
        notes.append(f"{hidden} more tensors {'agree' if found.equal else 'add less error'}; --all shows every tensor")
    if found.only_in_a:
        notes.append(f"{found.only_in_a} tensors of the first are not in the second")
    return Group(
        *lines,
        *[Text(f"({'; '.join(notes)})", style="dim")] * bool(notes),
        *_lines(comparison_verdict(found)),
        *(_lines(device_words(found.device)) if found.device is not None else ()),
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


def _comparison_row(row: TensorComparison) -> tuple[Text | str, ...]:
    style = "red" if row.not_finite else "" if row.within_limits or row.rescaled else "yellow"
    marks = ((f"  {mark}", "bold") for mark in comparison_marks(row))
    return Text.assemble((row.tensor, style), (f"  {row.op_type}", "dim"), *marks), *comparison_cells(row, digits=1)


def comparison_cells(row: TensorComparison, *, digits: int) -> tuple[str, ...]:
    """Figures of a tensor: cosine, max abs, MAE, SQNR, error, added here. Digits: of the absolute errors."""
    error = "" if row.not_finite else f"{row.relative_error:.2%}"
    added = f"{row.added_error:.2%}" if row.added_error and not row.not_finite else ""
    sqnr = "equal" if row.sqnr_db is None else f"{row.sqnr_db:.1f}"
    return f"{row.cosine:.6f}", f"{row.max_abs:.{digits}e}", f"{row.mae:.{digits}e}", sqnr, error, added


def comparison_marks(row: TensorComparison) -> list[str]:
    broken = f"{row.not_finite} NaN/inf"
    lengths, whole = f"other length in {row.resized}", f"{row.differing} of {row.elements} differ"
    marks = (
        (lengths, row.resized),
        (whole, row.differing),
        (broken, row.not_finite),
        ("output", row.is_output),
        ("JUMP", row.jump),
        ("rescaled", row.rescaled),
    )
    return [word for word, there in marks if there]


def study_text(study: LayerStudy) -> Group:
    """The ranking with both sides of every unit, the measured steps and the answer."""
    table = Table(
        title=f"{study.experiment}: {study.unit}s, most sensitive first (by {study.metric})",
        caption="SQNR, cosine, KL: of the model's outputs with only this one in INT8. bought: share of all noise that "
        f"goes when it stays in float. paid: extra time of its kernels in float, as a share of {priced_words(study)}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column(study.unit, overflow="fold", ratio=1)
    for name in ("SQNR\ndB", "1st order\ndB", "cosine", "KL", "bought", "MACs", "float\nµs", "INT8\nµs", "paid"):
        table.add_column(name, justify="right", no_wrap=True)
    for unit in study.units:
        table.add_row(Text(unit.sensitivity.unit), *unit_cells(unit, digits=0))
    parts: list[Table | Text] = [table]
    if study.steps:
        parts += [Text(""), _steps(study)]
    return Group(*parts, *_lines(study_verdict(study)))


def unit_cells(unit: Unit, *, digits: int) -> tuple[str, ...]:
    """Figures of a unit in INT8 and in float. Digits: of the KL divergence; the cosine has five more."""
    s, kl = unit.sensitivity, unit.sensitivity.kl
    return (
        *(f"{s.sqnr_db:.1f}", f"{s.first_order_db:.1f}", f"{s.cosine:.{5 + digits}f}"),
        *("" if kl is None else f"{kl:.{digits}e}", f"{unit.damage_share:.1%}", f"{unit.macs_share:.1%}"),
        *(microseconds(unit.float_us), microseconds(unit.int8_us), signed_percent(unit.call_share)),
    )


def _steps(study: LayerStudy) -> Table:
    table = Table(
        title=f"measured: INT8 with the most sensitive {study.unit}s kept in float",
        caption=STEPS_NOTE,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("kept in float", overflow="fold", ratio=1)
    for name in ("accuracy", "drop, pp\n[95 %]", "speed-up over float\n[95 %]"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for step in study.steps:
        kept, figures, words = step_cells(study, step)
        style = "bold green" if step is study.chosen else ""
        table.add_row(Text(kept, style=style), *(figures or ("", "", "")), Text(words, style=style))
    return table


def step_cells(study: LayerStudy, step: Step) -> tuple[str, tuple[str, ...], str]:
    """(what is kept, its figures, words on it); without figures where it was not measured."""
    kept = "nothing" if not step.kept else f"{step.kept}: {', '.join(step.units)}"
    accuracy, latency = step.evaluation.measurement.accuracy, step.evaluation.measurement.latency
    if accuracy is None or latency is None or accuracy.comparison is None:
        failure = step.evaluation.failure
        return kept, (), "failed" if failure is None else failure.message
    drop = accuracy.comparison.drop_pp
    worth = "loses accuracy" if drop.low > 0 else ""
    worth = "enough" if step is study.chosen else worth if step.feasible else "over a limit"
    figures = interval(drop, "", 2, signed=True), interval(latency.speedup, "", 2)
    return kept, (f"{accuracy.values[accuracy.primary]:.4f}", *figures), worth


def _lines(sentences: tuple[str, ...]) -> list[Text]:
    return [Text(sentence) for sentence in sentences]
