"""How far modelled times rest on a clock that nobody checked against a device, and what would settle it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from workbench.report.summary import Summary
from workbench.report.written.cells import as_figure, heading, label, paragraph, table, text
from workbench.report.written.document import Block, Cell, Commands, Table
from workbench.report.written.naming import candidate_name
from workbench.report.written.texts import chinese, spoken
from workbench.values.clocks.robustness import MicroBenchmark, Robustness, Share

_TITLE = "How far this rests on the emulator's clock"
_MOST = 8
"""Candidates that are named; one on the front of few clocks tells little."""
_WORTH_SAYING = 0.05


def on_the_clock(summary: Summary | None, source: str) -> Iterator[Block]:
    """Nothing where times were measured.

    Args:
        source: of the sweep, as commands take it.
    """
    found = None if summary is None else summary.robustness
    if summary is None or found is None:
        return
    yield heading(_TITLE)
    yield paragraph(
        "Nobody has checked the clock against a device. {n} clocks that may be right were asked: the "
        "emulator's and the data sheet's, each moved by what is not known of it; candidates are compared "
        "clock by clock.",
        n=found.clocks,
    )
    yield _shares(summary, found)
    if not found.benchmarks:
        yield paragraph(
            "The clocks agree. A device may lie outside of them all: only a sweep on a real one can bear that out."
        )
        return
    yield paragraph(
        "The least certain statement holds under {c} of the clocks; only a sweep on a real device bears it "
        "out. What changes it most:",
        c=f"{found.certainty:.0%}",
    )
    yield table(
        "Micro-benchmarks that would tell",
        "no.|what it tells|another answer under",
        [
            (
                as_figure(str(index)),
                text(_tells(one)),
                as_figure(f"{one.changed_under:.0%}"),
            )
            for index, one in enumerate(found.benchmarks, 1)
        ],
    )
    again = f"workbench show {shlex.quote(source)} --clock clock.json"
    yield Commands(lines=(*(one.command for one in found.benchmarks), again))


def _tells(one: MicroBenchmark) -> str:
    return str(chinese()["clock"].get(one.unknown, one.about)) if spoken() == "zh" else one.about


def _shares(summary: Summary, found: Robustness) -> Table:
    front = {member.id for member in summary.front}
    named = [s for s in found.shares if s.candidate_id in front or s.on_front >= _WORTH_SAYING]
    nowhere = [Share(candidate_id=i, on_front=0.0, best=0.0) for i in front if found.of(i) is None]
    recommended = None if summary.recommended is None else summary.recommended.candidate_id
    shown = [*named[:_MOST], *sorted(nowhere, key=lambda s: s.candidate_id)]
    return table(
        _TITLE,
        "id|what|on the front|the best|about",
        [_row(summary, share, share.candidate_id in front) for share in shown],
        strong=tuple(i for i, share in enumerate(shown) if share.candidate_id == recommended),
    )


def _row(summary: Summary, share: Share, on_front: bool) -> tuple[Cell, ...]:
    evaluation = summary.find(share.candidate_id)
    what = "–" if evaluation is None else candidate_name(evaluation.candidate)
    return (
        text(share.candidate_id[:12]),
        text(what),
        as_figure(f"{share.on_front:.0%}"),
        as_figure(f"{share.best:.0%}"),
        label("on the front by this clock" if on_front else "not on the front by this clock"),
    )
