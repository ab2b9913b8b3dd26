"""Which cards of a sweep are not to be trusted: by the float baseline, which is timed beside every candidate.

A candidate and the baseline are timed on one card in turns, so a ratio holds on any card; times are compared by it
(`Latency.drift`). A card on which the baseline itself takes longer or shorter than on its peers is another matter: it
is throttled, shared with somebody, or faulty, and what it says of a candidate may be too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from workbench.values.evidence import source_of
from workbench.values.results import Evaluation, Place

LEAST = 0.05
"""The least difference of the baseline's time that sets a card aside, as a share: healthy cards of one host differ by
less, and ratios are right within it."""
DEVIATIONS = 4.0
RECENT = 3
"""A card is compared by so many of its last evaluations, so that one that begins to throttle is seen."""
FEWEST = 2
"""Evaluations on a card before it is compared."""

_Seen = Sequence[tuple[Evaluation, float]]
"""Of one card, in their order, each with the logarithm of the baseline's time over its first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A card that differs from its peers.

    Attributes:
        reason: what was seen, as a sentence.
        measured: ids of the candidates whose measurement on it differs so, and is to be made elsewhere.
    """

    place: Place
    reason: str
    measured: tuple[str, ...]


def suspects(evaluations: Iterable[Evaluation]) -> list[Suspect]:
    """Cards whose baseline differs from their peers' beyond noise. Of two cards the slower one: faults slow down."""
    seen_by: dict[Place, list[tuple[Evaluation, float]]] = {}
    for evaluation in sorted(evaluations, key=lambda e: (e.started_at, e.candidate.id)):
        latency, place = evaluation.measurement.latency, evaluation.place
        if place is not None and place.card and latency is not None and source_of(evaluation, "latency") is None:
            seen_by.setdefault(place, []).append((evaluation, math.log(latency.drift)))
    known: dict[Place, _Seen] = {place: seen for place, seen in seen_by.items() if len(seen) >= FEWEST}
    noise, found = _noise(known.values()), []
    while worst := _worst(known, noise):
        found.append(worst)
        del known[worst.place]  # the others are compared with each other
    return found


def _worst(known: Mapping[Place, _Seen], noise: float) -> Suspect | None:
    """The card that differs most, if it does beyond noise."""
    recent = {place: median(drift for _, drift in seen[-RECENT:]) for place, seen in known.items()}
    off = {
        place: level - median(others)
        for place, level in recent.items()
        if (others := [other for peer, other in recent.items() if peer != place])
    }
    for place in sorted(off, key=lambda place: (-abs(off[place]), -off[place])):
        seen, usual = known[place], recent[place] - off[place]
        limit = max(math.log1p(LEAST), DEVIATIONS * noise / math.sqrt(min(len(seen), RECENT)))
        beyond = [e.candidate.id for e, drift in seen if (drift - usual) * math.copysign(1.0, off[place]) > limit]
        if abs(off[place]) > limit and len(beyond) >= FEWEST:
            reason = _reason(place, seen, usual, off[place], limit)
            return Suspect(place=place, reason=reason, measured=tuple(beyond))
    return None


def _noise(cards: Iterable[_Seen]) -> float:
    """The standard deviation of the baseline's time on one card, of all cards; by the steps from one evaluation to the
    next, so that a card which drifts does not excuse itself."""
    steps = [(b - a) ** 2 for seen in cards for (_, a), (_, b) in pairwise(seen)]
    return math.sqrt(median(steps) / 0.455 / 2) if steps else 0.0  # 0.455: the median of a squared standard normal


def _reason(place: Place, seen: Sequence[tuple[Evaluation, float]], usual: float, off: float, limit: float) -> str:
    way = "longer" if off > 0 else "shorter"
    began = abs(seen[0][1] - usual) <= limit
    since = ", and did not at first" if began else ""
    return (
        f"the float baseline takes {abs(math.expm1(off)):.0%} {way} on {place.words} than on its peers{since}; noise "
        f"explains {math.expm1(limit):.0%}"
    )
