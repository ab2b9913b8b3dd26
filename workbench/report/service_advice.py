"""Advice on what a service may be told: choices at the edge of what is offered that won, and choices that never did.

They rest on simulations, which cost nothing: a choice that never won may stay, and what lies beyond an edge is worth
trying.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.report.summary import Summary
from workbench.report.words import count_of
from workbench.values.evidence import Evidence, service_level, weakest
from workbench.values.service import ServiceChoices, ServiceSettings

FEWEST = 8
"""Candidates with a best setting, before a choice is said never to win."""
_SETTINGS = ("max_batch_size", "batch_timeout_ms", "workers", "sequence_bins")
_LEAST = {"max_batch_size": 1, "batch_timeout_ms": 0, "workers": 1, "sequence_bins": 1}
"""Less than this there is not."""

Choice = float | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNote:
    """Attributes:
    choice: several of them where `kind` is never.
    of: members of the front that it was best for, or candidates that it was best for none of.
    level: how well it is known what was best.
    """

    name: str
    choice: str
    kind: Literal["largest", "smallest", "never"]
    of: int
    level: Evidence

    def words(self) -> str:
        if self.kind == "never":
            many = count_of(self.of, "candidate")
            return f"service.{self.name} {self.choice}: best for none of {many} ({self.level})"
        beyond = "larger" if self.kind == "largest" else "smaller"
        beyond = {"sequence_bins": "finer" if self.kind == "largest" else "coarser"}.get(self.name, beyond)
        members = {1: "the one member", 2: "both members"}.get(self.of, f"all {self.of} members")
        return (
            f"service.{self.name}: {self.choice} is the {self.kind} on offer and was best for {members} of the front "
            f"({self.level}): a {beyond} one may be better"
        )


def advise_service(summary: Summary, choices: ServiceChoices) -> tuple[ServiceNote, ...]:
    """Nothing where nothing was measured, as on an emulated device."""
    if summary.emulated:
        return ()
    members = [summary.strongest(m.evaluation) for m in summary.front if m.id != summary.baseline_id]
    notes: list[ServiceNote] = []
    for name in _SETTINGS:
        offered: tuple[Choice, ...] = getattr(choices, name, ())
        if len(offered) < 2:
            continue
        best = [
            (_said(s.best.settings, name), service_level(e, s))
            for e in members
            if (s := e.measurement.service) is not None and s.best is not None and _matters(s.best.settings, name)
        ]
        won = {choice for choice, _ in best}
        level = weakest(level for _, level in best)
        if len(won) == 1 and level is not None:
            notes += _edge(name, won.pop(), offered, len(best), level)
        notes += _never(summary, name, offered)
    return tuple(notes)


def _edge(name: str, won: Choice, offered: tuple[Choice, ...], of: int, level: Evidence) -> list[ServiceNote]:
    sizes = [_size(choice) for choice in offered]
    if _size(won) == max(sizes):
        return [ServiceNote(name=name, choice=_shown(won), kind="largest", of=of, level=level)]
    if _size(won) == min(sizes) and _size(won) > _LEAST[name]:
        return [ServiceNote(name=name, choice=_shown(won), kind="smallest", of=of, level=level)]
    return []


def _never(summary: Summary, name: str, offered: tuple[Choice, ...]) -> list[ServiceNote]:
    """By what the search itself simulated, of candidates for which the setting means something."""
    having = [
        (s.best.settings, service_level(e, s))
        for e in summary.evaluations
        if (s := e.measurement.service) is not None and s.best is not None and _matters(s.best.settings, name)
    ]
    level = weakest(level for _, level in having)
    if len(having) < FEWEST or level is None:
        return []
    best = {_said(settings, name) for settings, _ in having}
    never = ", ".join(_shown(choice) for choice in offered if choice not in best)
    return [ServiceNote(name=name, choice=never, kind="never", of=len(having), level=level)] if never else []


def _said(settings: ServiceSettings, name: str) -> Choice:
    choice: Choice = getattr(settings, name)
    return choice


def _matters(settings: ServiceSettings, name: str) -> bool:
    """Without batching the timeout means nothing; a journal of before may not say the lengths."""
    if name == "batch_timeout_ms":
        return settings.max_batch_size > 1
    return bool(getattr(settings, name, ())) or name != "sequence_bins"


def _size(choice: Choice) -> float:
    return len(choice) if isinstance(choice, tuple) else choice


def _shown(choice: Choice) -> str:
    return " ".join(map(str, choice)) if isinstance(choice, tuple) else f"{choice:g}"
