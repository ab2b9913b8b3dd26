"""Advice on a search space from what a sweep measured: what made no difference, what always lost, what to widen.

It rests on measurements alone. Whatever a search says of a service is a prediction: it may keep a dimension, and is
never a reason to take one out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from workbench.report.alike import Alike, OutcomesOf, throughput_of
from workbench.report.summary import Summary
from workbench.report.words import SERVICE, cost_of, count_of, drop_of, scored, speedup_of
from workbench.values.dimension import Scalar
from workbench.values.evidence import Evidence, level_for, service_level, weakest
from workbench.values.results import Evaluation
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
            notes += _service_edge(name, won.pop(), offered, len(best), level)
        notes += _never(summary, name, offered)
    return tuple(notes)


def _service_edge(name: str, won: Choice, offered: tuple[Choice, ...], of: int, level: Evidence) -> list[ServiceNote]:
    sizes = [_size(choice) for choice in offered]
    if _size(won) == max(sizes):
        return [ServiceNote(name=name, choice=_choice_words(won), kind="largest", of=of, level=level)]
    if _size(won) == min(sizes) and _size(won) > _LEAST[name]:
        return [ServiceNote(name=name, choice=_choice_words(won), kind="smallest", of=of, level=level)]
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
    never = ", ".join(_choice_words(choice) for choice in offered if choice not in best)
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


def _choice_words(choice: Choice) -> str:
    return " ".join(map(str, choice)) if isinstance(choice, tuple) else f"{choice:g}"


LEAST_PAIRS = 3
"""Pairs of candidates that differ in nothing else, before anything is said of a dimension or a choice. That many
candidates with a choice were beaten says nothing by itself: nearly all are, for whatever reason."""
LEAST_CANDIDATES = 8
"""Measured to the end; with fewer nothing is said."""
_MEASURED = ("throughput_per_s", "accuracy")

Assignments = Mapping[str, Mapping[str, Scalar]]
"""Candidate → parameter of the space → its choice there."""
Offered = Mapping[str, Sequence[Scalar]]
"""Parameter → its choices, the default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoDifference:
    """A dimension in which no two candidates that differ in it alone could be told apart.

    Two that are equal by what was compiled of them, and in the outcome of every sample, count wherever they differ.

    Attributes:
        kept: its default, which is the only choice worth keeping.
        percent: by so much at most the choices differ in speed, by the widest interval of the pairs.
        drop: by so much at most in accuracy, in points or the metric's own unit; None where it is not known.
    """

    name: str
    kept: Scalar
    choices: tuple[Scalar, ...]
    pairs: int
    percent: float
    drop: float | None

    def words(self, unit: str) -> str:
        bound = f"at most {self.percent:.1f} % of speed"
        bound += f" and {self.drop:.2g} {unit}" if self.drop is not None else ""
        where = f"in {count_of(self.pairs, 'pair')} that differ in it alone, or are equal by content"
        return f"no difference beyond noise {where}: {bound}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysLost:
    """A choice that lost for certain in each of `of` pairs of candidates that differ in it alone."""

    name: str
    choice: Scalar
    of: int

    def words(self) -> str:
        return f"lost for certain in all {count_of(self.of, 'pair')} that differ in it alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The best choice is the least or the largest that was offered."""

    name: str
    choice: Scalar
    largest: bool

    def words(self) -> str:
        end, beyond = ("largest", "larger") if self.largest else ("smallest", "smaller")
        return f"{self.choice} won and is the {end} on offer: a {beyond} one may be better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a sweep says of its space.

    Attributes:
        service: of what a service may be told; nothing of that is taken out of a space.
        note: why there is little or nothing in it; empty where there is nothing to say.
        unit: of a difference in accuracy.
    """

    no_difference: tuple[NoDifference, ...] = ()
    always_lost: tuple[AlwaysLost, ...] = ()
    edges: tuple[Edge, ...] = ()
    service: tuple[ServiceNote, ...] = ()
    note: str = ""
    unit: str = "pp"

    def dropped(self) -> list[tuple[str, Scalar, str]]:
        """(parameter, choice, why) of what may be taken out of the space."""
        found = [(d.name, c, d.words(self.unit)) for d in self.no_difference for c in d.choices if c != d.kept]
        return found + [(lost.name, lost.choice, lost.words()) for lost in self.always_lost]

    def sentences(self) -> list[str]:
        return [
            *(f"{d.name}: {d.words(self.unit)}" for d in self.no_difference),
            *(f"{lost.name} {_shown(lost.choice)}: {lost.words()}" for lost in self.always_lost),
            *(f"{edge.name}: {edge.words()}" for edge in self.edges),
            *(note.words() for note in self.service),
            *([self.note] if self.note else []),
        ]


def advise(
    summary: Summary,
    outcomes: OutcomesOf,
    assignments: Assignments,
    offered: Offered,
    *,
    service: ServiceChoices | None = None,
) -> Advice:
    """Needs a sweep whose candidates were measured; on an emulated device nothing was.

    Args:
        assignments: of candidates that the space has; others take no part.
    """
    of_service = () if service is None else advise_service(summary, service)
    by = scored(summary.evaluations)
    complete = [e for e in summary.evaluations if e.status == "complete" and e.candidate.id in assignments]
    if any(level_for(e, _MEASURED) == "modelled" for e in complete):
        return Advice(note="Its times are modelled, and a space is narrowed by measurements alone.")
    if len(complete) < LEAST_CANDIDATES:
        few = f"{count_of(len(complete), 'candidate')} measured to the end"
        if len(complete) < sum(e.status == "complete" for e in summary.evaluations):
            few += " that the space has as it is now"
        note = f"{few}: too few to say which dimensions matter; {LEAST_CANDIDATES} are needed."
        return Advice(service=of_service, note=note)
    alike = Alike(summary.objectives, outcomes, summary.baseline_id)
    same: list[NoDifference] = []
    while True:  # what makes no difference may differ in a pair, so that each one found may show more of them
        settled = {d.name for d in same}
        pairs = _pairs(complete, assignments, settled, alike.by_content)
        more = [
            d
            for name, choices in offered.items()
            if name not in settled
            and (d := _no_difference(summary, alike, pairs.get(name, []), assignments, name, choices)) is not None
        ]
        if not more:
            break
        same += more
    settled = {d.name for d in same}
    tried = [e for e in summary.evaluations if e.status != "failed" and e.candidate.id in assignments]
    pairs = _pairs(tried, assignments, settled)
    lost = [
        AlwaysLost(name=name, choice=choice, of=count)
        for name, choices in offered.items()
        if name not in settled
        for choice in choices
        if (count := _losses(summary, alike, pairs.get(name, []), assignments, name, choice))
    ]
    edges = [e for name in offered if name not in settled and (e := _edge(summary, assignments, name, offered[name]))]
    note = ""
    if not same and not lost:
        note = "Nothing of the space can be left out: what differs in one dimension alone was measured too seldom, or "
        note += "made a difference."
    return Advice(
        no_difference=tuple(same),
        always_lost=tuple(lost),
        edges=tuple(edges),
        service=of_service,
        note=note,
        unit=by.drop_unit,
    )


def _no_difference(
    summary: Summary,
    alike: Alike,
    pairs: Sequence[tuple[Evaluation, Evaluation]],
    assignments: Assignments,
    name: str,
    offered: Sequence[Scalar],
) -> NoDifference | None:
    seen = {assignments[e.candidate.id][name] for pair in pairs for e in pair}
    if len(pairs) < LEAST_PAIRS or seen != set(offered) or not all(alike.altogether(a, b) for a, b in pairs):
        return None
    drops = [_drop_bound(summary, a, b) for a, b in pairs]
    known = [d for d in drops if d is not None]
    return NoDifference(
        name=name,
        kept=offered[0],
        choices=tuple(offered),
        pairs=len(pairs),
        percent=100 * max(_speed_bound(a, b) for a, b in pairs),
        drop=max(known) if len(known) == len(drops) else None,
    )


def _pairs(
    of: Sequence[Evaluation],
    assignments: Assignments,
    settled: Set[str],
    equal: Callable[[Evaluation, Evaluation], bool] = lambda a, b: False,
) -> dict[str, list[tuple[Evaluation, Evaluation]]]:
    """Parameter → pairs that differ in it and in nothing else that both have and that is not settled; what one alone
    has depends on it.

    Args:
        equal: of two that are equal by what they are made of, each of the parameters that they differ in made no
            difference.
    """
    found: dict[str, list[tuple[Evaluation, Evaluation]]] = {}
    for a, b in itertools.combinations(of, 2):
        mine, its = assignments[a.candidate.id], assignments[b.candidate.id]
        differing = [name for name, c in mine.items() if name in its and its[name] != c and name not in settled]
        if len(differing) == 1 or (differing and equal(a, b)):
            for name in differing:
                found.setdefault(name, []).append((a, b))
    return found


def _speed_bound(a: Evaluation, b: Evaluation) -> float:
    """By what share the faster one is faster, at most, as far as the intervals tell."""
    paired = a.candidate.serving.batch == b.candidate.serving.batch
    first, second = (speedup_of(a), speedup_of(b)) if paired else (throughput_of(a), throughput_of(b))
    ratio = math.log(first.value / second.value)
    up = math.hypot(math.log(first.high / first.value), math.log(second.value / second.low))
    down = math.hypot(math.log(first.value / first.low), math.log(second.high / second.value))
    return math.expm1(max(ratio + up, down - ratio))


def _drop_bound(summary: Summary, a: Evaluation, b: Evaluation) -> float | None:
    first, second = drop_of(a, summary.baseline_id), drop_of(b, summary.baseline_id)
    if first is None or second is None:
        return None
    up = math.hypot(first.high - first.value, second.value - second.low)
    down = math.hypot(first.value - first.low, second.high - second.value)
    return max(first.value - second.value + up, second.value - first.value + down)


def _losses(
    summary: Summary,
    alike: Alike,
    pairs: Sequence[tuple[Evaluation, Evaluation]],
    assignments: Assignments,
    name: str,
    choice: Scalar,
) -> int:
    """In how many pairs it lost, where it did in all of them; 0 where it did not, or they are few.

    A choice of the baseline or of a member of the front did not lose, whatever the pairs say.
    """
    wanted = (summary.baseline_id, *(m.id for m in summary.front))
    if any(assignments.get(i, {}).get(name) == choice for i in wanted):
        return 0
    met = [pair for pair in pairs if any(assignments[e.candidate.id][name] == choice for e in pair)]
    split = [(a, b) if assignments[a.candidate.id][name] == choice else (b, a) for a, b in met]
    return len(met) if len(met) >= LEAST_PAIRS and all(_lost(summary, alike, *pair) for pair in split) else 0


def _lost(summary: Summary, alike: Alike, evaluation: Evaluation, rival: Evaluation) -> bool:
    """Whether a gate, which stops on what is certain alone, stopped it and not its rival; or its rival beats it."""
    if rival.status != "complete" or not summary.is_feasible(rival):
        return False
    return evaluation.stop is not None or _beats(summary, alike, rival, evaluation)


def _beats(summary: Summary, alike: Alike, rival: Evaluation, other: Evaluation) -> bool:
    """Worse in nothing that can be told, and better for certain in something that was measured."""
    names = dict.fromkeys((*_MEASURED, *(o.metric for o in summary.objectives)))
    known = [name for name in names if all(name in summary.numbers(e) for e in (rival, other))]
    better = False
    for name in known:
        if alike.in_metric(rival, other, name):
            continue
        if cost_of(rival, name, summary.baseline_id) > cost_of(other, name, summary.baseline_id):
            return False
        better = better or name not in SERVICE
    return better


def _edge(summary: Summary, assignments: Assignments, name: str, offered: Sequence[Scalar]) -> Edge | None:
    """Of the recommended candidate, where every member of the front that has the parameter has the same choice."""
    numbers = [c for c in offered if isinstance(c, int | float) and not isinstance(c, bool)]
    if summary.recommended is None or len(numbers) != len(offered) or len(numbers) < 2:
        return None
    chosen = assignments.get(summary.recommended.candidate_id, {}).get(name)
    having = [assignments.get(m.id, {}).get(name) for m in summary.front if m.id != summary.baseline_id]
    if chosen is None or any(choice not in (None, chosen) for choice in having):
        return None
    level = summary.recommended.evidence
    if chosen not in (min(numbers), max(numbers)) or chosen in (0, 1) or level in (None, "predicted", "modelled"):
        return None
    return Edge(name=name, choice=chosen, largest=chosen == max(numbers))


def _shown(choice: Scalar) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)
