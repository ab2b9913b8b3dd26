"""A modelled front under every clock that may be right, said to people: who stays, and what to measure on a device."""

from __future__ import annotations

import shlex

from workbench.prediction.robustness import Contender, robustness
from workbench.report.reading import ACCURACY
from workbench.report.summary import Summary
from workbench.report.table import Line, wrapped
from workbench.values.clocks.robustness import Robustness, Share


def under_clocks(summary: Summary) -> Robustness | None:
    """None where times were measured, or nothing is on the front."""
    if not summary.emulated or not summary.front:
        return None
    contenders = [
        Contender(id=e.candidate.id, measurement=e.measurement, numbers=summary.numbers(e))
        for e in summary.evaluations
        if e.status == "complete"
    ]
    names = [o.metric for o in summary.objectives]
    return robustness(
        contenders,
        summary.objectives,
        summary.constraints,
        lead=next((name for name in names if name not in ACCURACY), names[0]),
        recommended="" if summary.recommended is None else summary.recommended.candidate_id,
    )


_HEAD = "How far this rests on the emulator's clock"


def clock_lines(summary: Summary) -> list[Line]:
    """For a terminal; nothing where times were measured."""
    found = summary.robustness
    if found is None:
        return []
    lines: list[Line] = [(f"{_HEAD}:", "bold")]
    for member in summary.front:
        share = found.of(member.id) or Share(candidate_id=member.id, on_front=0.0, best=0.0)
        candidate = member.evaluation.candidate
        named = f"  {candidate.short_id}  {summary.title(candidate)}: {_words(share, found.lead)}"
        lines += wrapped(named, indent=" " * 16)
    for sentence in _sentences(found):
        lines += wrapped(sentence, "yellow")
    for number, one in enumerate(found.benchmarks, 1):
        lines += wrapped(
            f"  {number}. {one.about}: another answer under {one.changed_under:.0%} of its values", indent=" " * 5
        )
        lines.append((f"     {one.command}", "dim"))
    if found.benchmarks:
        lines.append((f"     {_again(summary)}", "dim"))
    return lines


def _again(summary: Summary) -> str:
    return f"workbench show {shlex.quote(summary.experiment_file)} --clock clock.json"


def _sentences(found: Robustness) -> list[str]:
    """What the shares rest on, and what would settle the order."""
    words = [
        f"Nobody has checked this clock against a device. Asked were {found.clocks} clocks that may be right: the "
        "emulator's and the data sheet's, each moved by what is not known of it. A device may lie outside of them all: "
        "what a share of them says is no probability."
    ]
    least = (
        f"Of who is on the front and who is best, the least certain answer holds under {found.certainty:.0%} of them"
    )
    after = "What these micro-benchmarks measure changes it most:" if found.benchmarks else "All of them agree."
    return [*words, f"{least}; only a sweep on a real device bears it out. {after}"]


def _words(share: Share, lead: str) -> str:
    """'on the front under 83 % of the clocks, the best in throughput_per_s under 41 %'."""
    return f"on the front under {share.on_front:.0%} of the clocks, the best in {lead} under {share.best:.0%}"
