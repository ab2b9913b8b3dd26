"""What a comparison and a study of layers found, as terminal text."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from workbench.report.device_words import device_words
from workbench.report.layers_words import (
    adoption,
    comparison_verdict,
    kept_words,
    ladder_note,
    microseconds,
    priced_words,
    signed_percent,
    study_verdict,
)
from workbench.report.words import count_of
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.layers import LayerStudy, Rung

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
    return (
        Text.assemble((row.tensor, style), (f"  {row.op_type}", "dim"), *((f"  {m}", "bold") for m in _marks(row))),
        f"{row.cosine:.6f}",
        f"{row.max_abs:.1e}",
        f"{row.mae:.1e}",
        "equal" if row.sqnr_db is None else f"{row.sqnr_db:.1f}",
        f"{row.relative_error:.2%}" if not row.not_finite else "",
        f"{row.added_error:.2%}" if row.added_error and not row.not_finite else "",
    )


def _marks(row: TensorComparison) -> list[str]:
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
    """The ranking with both sides of every unit, the measured ladder and the answer."""
    table = Table(
        title=f"{study.experiment}: {study.unit}s, most sensitive first (by {study.metric})",
        caption="SQNR, cosine, KL: of the model's outputs with only this one in INT8. bought: share of all noise that "
        f"goes when it stays in float. paid: extra time of its kernels in float, as a share of {priced_words(study)}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column(study.unit, overflow="fold", ratio=1)
    for name in (
        "SQNR\ndB",
        "1st order\ndB",
        "cosine",
        "KL",
        "bought",
        "MACs",
        "float\nµs",
        "INT8\nµs",
        "paid",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for unit in study.units:
        s = unit.sensitivity
        table.add_row(
            Text(s.unit),
            f"{s.sqnr_db:.1f}",
            f"{s.first_order_db:.1f}",
            f"{s.cosine:.5f}",
            "" if s.kl is None else f"{s.kl:.0e}",
            f"{unit.damage_share:.1%}",
            f"{unit.macs_share:.1%}",
            microseconds(unit.float_us),
            microseconds(unit.int8_us),
            signed_percent(unit.call_share),
        )
    parts: list[Table | Text] = [table]
    if study.rungs:
        parts += [Text(""), _ladder(study)]
    return Group(*parts, *_lines(study_verdict(study)))


def _ladder(study: LayerStudy) -> Table:
    table = Table(
        title=f"measured: INT8 with the most sensitive {study.unit}s kept in float",
        caption=ladder_note(study),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("kept in float", overflow="fold", ratio=1)
    for name in ("accuracy", "drop, pp\n[95 %]", "speed-up over float\n[95 %]"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for rung in study.rungs:
        table.add_row(*_rung_row(study, rung))
    return table


def _rung_row(study: LayerStudy, rung: Rung) -> tuple[Text | str, ...]:
    accuracy, latency = rung.evaluation.measurement.accuracy, rung.evaluation.measurement.latency
    if accuracy is None or latency is None or accuracy.comparison is None:
        failure = rung.evaluation.failure
        return Text(kept_words(rung)), "", "", "", Text("failed" if failure is None else failure.message)
    drop, gain = accuracy.comparison.drop_pp, latency.speedup
    style = "bold green" if rung is study.chosen else ""
    return (
        Text(kept_words(rung), style=style),
        f"{accuracy.values[accuracy.primary]:.4f}",
        f"{drop.value:+.2f} [{drop.low:+.2f}, {drop.high:+.2f}]",
        f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]",
        Text(adoption(study, rung), style=style),
    )


def _lines(sentences: tuple[str, ...]) -> list[Text]:
    return [Text(sentence) for sentence in sentences]
