"""A modelled front under every clock that may be right, said to people: who stays, and what to measure on a device."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from workbench.prediction.robustness import Contender, robustness
from workbench.report.reading import ACCURACY
from workbench.report.summary import Summary
from workbench.report.table import Line, wrapped
from workbench.report.words import count_of
from workbench.values.clocks.robustness import Robustness, Share

_WORTH_SAYING = 0.05
"""Share of the clocks from which a candidate that is not on the front is named."""
_MOST_OTHERS = 5


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
    for named, share, note in _shown(summary, found):
        words = f"  {named}: {_words(share, found.lead)}{f' ({note})' if note else ''}"
        lines += wrapped(words, indent=" " * 16)
    for sentence in _sentences(found):
        lines += wrapped(sentence, "yellow" if found.benchmarks or not found.settles else "")
    for number, one in enumerate(found.benchmarks, 1):
        lines += wrapped(f"  {number}. {one.about}: {one.certainty:.0%} certain once known", indent=" " * 5)
        lines.append((f"     {one.command}", "dim"))
    if found.benchmarks:
        lines.append((f"     {_again(summary)}", "dim"))
    return lines


def clock_html(summary: Summary) -> str:
    """The same as a part of the page."""
    found = summary.robustness
    if found is None:
        return ""
    rows = "".join(
        f"<tr><td style='white-space: normal'>{html.escape(named)} <span class=muted>{html.escape(note)}</span></td>"
        f'<td class="n">{share.on_front:.0%}</td><td class="n">{share.best:.0%}</td></tr>'
        for named, share, note in _shown(summary, found)
    )
    told = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in _sentences(found))
    listed = "".join(
        f"<li>{html.escape(one.about)}: {one.certainty:.0%} certain once known<br>"
        f"<code>{html.escape(one.command)}</code></li>"
        for one in found.benchmarks
    )
    last = f"<ol>{listed}</ol><p><code>{html.escape(_again(summary))}</code></p>" if listed else ""
    return (
        f'<h2>{_HEAD}</h2><div class="wide"><table><tr><th>candidate, and the share of clocks under which it is</th>'
        f'<th class="n">on the front</th><th class="n">best in {html.escape(found.lead)}</th></tr>{rows}</table></div>'
        f"{told}{last}"
    )


def _again(summary: Summary) -> str:
    return f"workbench show {shlex.quote(summary.experiment_file)} --clock clock.json"


def _sentences(found: Robustness) -> list[str]:
    """What the shares rest on, and what would settle the order."""
    words = [
        f"Nobody has checked this clock against a device. Asked were {found.clocks} clocks that may be right: the "
        "emulator's and the data sheet's, each moved by what is not known of it."
    ]
    if not found.benchmarks:
        if found.settles:
            return [
                *words,
                f"They agree on front and best to at least {found.certainty:.0%}: no measurement is needed.",
            ]
        return [*words, "They do not agree, and nothing that could be measured of the clock alone would settle it."]
    toss = f"Of who is on the front and who is best, the least certain answer holds under {found.certainty:.0%} of them"
    more = "" if found.settles else f", which is as far as measurements of the clock go (wanted: {found.wanted:.0%})"
    reached = found.benchmarks[-1].certainty
    many = count_of(len(found.benchmarks), "micro-benchmark")
    return [*words, f"{toss}; with {many} on a real device it would be {reached:.0%} certain{more}:"]


def _words(share: Share, lead: str) -> str:
    """'on the front under 83 % of the clocks, the best in throughput_per_s under 41 %'."""
    return f"on the front under {share.on_front:.0%} of the clocks, the best in {lead} under {share.best:.0%}"


def _shown(summary: Summary, found: Robustness) -> Sequence[tuple[str, Share, str]]:
    """(candidate's short id with its title, share, what it is by the clock that is run), front members first."""
    on_front = [member.id for member in summary.front]
    others = [s for s in found.shares if s.candidate_id not in on_front and s.on_front >= _WORTH_SAYING]
    nowhere = (Share(candidate_id=each, on_front=0.0, best=0.0) for each in on_front if found.of(each) is None)
    shares = [*(share for each in on_front if (share := found.of(each)) is not None), *nowhere, *others[:_MOST_OTHERS]]
    rows = []
    for share in shares:
        evaluation = summary.find(share.candidate_id)
        assert evaluation is not None, "shares are of candidates that were evaluated"
        named = f"{evaluation.candidate.short_id}  {summary.title(evaluation.candidate)}"
        rows.append((named, share, "" if share.candidate_id in on_front else "not on the front by this clock"))
    return rows
