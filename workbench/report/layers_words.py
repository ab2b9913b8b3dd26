"""Sentences about layers that the terminal and the page share."""

from __future__ import annotations

from workbench.report.words import count_of
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.layers import LayerStudy, Rung

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


def kept_words(rung: Rung) -> str:
    return "nothing" if not rung.kept else f"{rung.kept}: {', '.join(rung.units)}"


def adoption(study: LayerStudy, rung: Rung) -> str:
    """What a measured rung is worth, in a word or two."""
    if rung is study.chosen:
        return "enough"
    if not rung.feasible:
        return "over a limit"
    accuracy = rung.evaluation.measurement.accuracy
    lost = accuracy is not None and accuracy.comparison is not None and accuracy.comparison.drop_pp.low > 0
    return "loses accuracy" if lost else ""


def ladder_note(study: LayerStudy) -> str:
    return (
        "accuracy on the validation split and its drop against the float model, sample by sample; 'enough' is the "
        "first that meets the limits of the experiment and cannot be told from float"
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
    if not study.rungs:
        return (f"Nothing was measured: this ranks the {study.unit}s only.",)
    if chosen is None:
        return (
            f"None of these candidates both meets the limits and cannot be told from float in accuracy. Try --unit "
            f"{'layer' if study.unit == 'group' else 'group'}, another --metric, or another recipe with --candidate.",
        )
    first = study.rungs[0]
    gains = [rung.evaluation.measurement.latency for rung in (first, chosen)]
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
