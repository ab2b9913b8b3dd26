"""Advice on a search space from what a sweep measured: what made no difference, what always lost, what to widen.

It rests on measurements alone. Whatever a search says of a service is a prediction: it may keep a dimension, and is
never a reason to take one out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence, Set

from workbench.report.alike import Alike, OutcomesOf, throughput_of
from workbench.report.summary import Summary
from workbench.report.words import SERVICE, cost_of, count_of, loss_of, scored, speedup_of
from workbench.values.dimension import Scalar
from workbench.values.evidence import level_for
from workbench.values.measurement import Estimate
from workbench.values.results import Evaluation

LEAST_PAIRS = 3
"""Pairs of candidates that differ in nothing else, before anything is said of a dimension or a choice. That many
candidates with a choice were beaten says nothing by itself: nearly all are, for whatever reason."""
LEAST_CANDIDATES = 8
"""Measured to the end; with fewer nothing is said."""
_MEASURED = ("throughput_per_s", "accuracy")

Assignments = Mapping[str, Mapping[str, Scalar]]
"""Candidate → parameter of the space → its choice there."""
Pair = tuple[Evaluation, Evaluation]


def advise(
    summary: Summary, outcomes: OutcomesOf, assignments: Assignments, offered: Mapping[str, Sequence[Scalar]]
) -> list[str]:
    """Sentences: which parameter made no difference (no two candidates that differ in it alone could be told apart),
    which choice lost for certain in each such pair, which best choice is the least or the largest on offer; or why
    there is little or nothing to say. Needs a sweep whose candidates were measured; on an emulated device nothing was.

    Args:
        assignments: of candidates that the space has; others take no part.
        offered: parameter → its choices, the default first.
    """
    complete = [e for e in summary.evaluations if e.status == "complete" and e.candidate.id in assignments]
    if any(level_for(e, _MEASURED) == "modelled" for e in complete):
        return ["Its times are modelled, and a space is narrowed by measurements alone."]
    if len(complete) < LEAST_CANDIDATES:
        few = f"{count_of(len(complete), 'candidate')} measured to the end"
        if len(complete) < sum(e.status == "complete" for e in summary.evaluations):
            few += " that the space has as it is now"
        return [f"{few}: too few to say which dimensions matter; {LEAST_CANDIDATES} are needed."]
    alike = Alike(summary.objectives, outcomes, summary.baseline_id)
    same: dict[str, str] = {}
    while True:  # what makes no difference may differ in a pair, so that each one found may show more of them
        pairs = _pairs(complete, assignments, same.keys(), alike.by_content)
        more = {
            name: words
            for name, choices in offered.items()
            if name not in same
            and (words := _no_difference(summary, alike, pairs.get(name, [])))
            and {assignments[e.candidate.id][name] for pair in pairs[name] for e in pair} == set(choices)
        }
        if not more:
            break
        same |= more
    tried = [e for e in summary.evaluations if e.status != "failed" and e.candidate.id in assignments]
    pairs = _pairs(tried, assignments, same.keys())
    lost, edges = [], []
    for name, choices in offered.items():
        if name in same:
            continue
        for choice in choices:
            if count := _losses(summary, alike, pairs.get(name, []), assignments, name, choice):
                shown = str(choice).lower() if isinstance(choice, bool) else choice
                lost.append(
                    f"{name} {shown}: lost for certain in all {count_of(count, 'pair')} that differ in it alone"
                )
        if words := _edge(summary, assignments, name, choices):
            edges.append(f"{name}: {words}")
    note = "Nothing of the space can be left out: what differs in one dimension alone was measured too seldom, or "
    note += "made a difference."
    kept = [f"{name}: {same[name]}" for name in offered if name in same]
    return [*kept, *lost, *edges, *([] if same or lost else [note])]


def _no_difference(summary: Summary, alike: Alike, pairs: Sequence[Pair]) -> str:
    """With the bounds that the widest interval of the pairs leaves open; '' where they are few or can be told apart."""
    if len(pairs) < LEAST_PAIRS or not all(alike.altogether(a, b) for a, b in pairs):
        return ""
    words = f"no difference beyond noise in {count_of(len(pairs), 'pair')} that differ in it alone, or are equal by "
    words += f"content: at most {100 * max(_speed_bound(a, b) for a, b in pairs):.1f} % of speed"
    losses = [(loss_of(a, summary.baseline_id), loss_of(b, summary.baseline_id)) for a, b in pairs]
    bounds = [_bound(a, b) for a, b in losses if a is not None and b is not None]
    if len(bounds) == len(pairs):
        words += f" and {max(bounds):.2g} {scored(summary.evaluations).loss_unit}"
    return words


def _pairs(
    of: Sequence[Evaluation],
    assignments: Assignments,
    settled: Set[str],
    equal: Callable[[Evaluation, Evaluation], bool] = lambda a, b: False,
) -> dict[str, list[Pair]]:
    """Parameter → pairs that differ in it and in nothing else that both have and that is not settled; what one alone
    has depends on it.

    Args:
        equal: of two that are equal by what they are made of, each of the parameters that they differ in made no
            difference.
    """
    found: dict[str, list[Pair]] = {}
    for a, b in itertools.combinations(of, 2):
        mine, its = assignments[a.candidate.id], assignments[b.candidate.id]
        differing = [name for name, c in mine.items() if name in its and its[name] != c and name not in settled]
        if len(differing) == 1 or (differing and equal(a, b)):
            for name in differing:
                found.setdefault(name, []).append((a, b))
    return found


def _speed_bound(a: Evaluation, b: Evaluation) -> float:
    """By what share the faster one is faster, at most, as far as the intervals tell."""
    of = speedup_of if a.candidate.serving.batch == b.candidate.serving.batch else throughput_of
    logs = [Estimate(value=math.log(e.value), low=math.log(e.low), high=math.log(e.high)) for e in (of(a), of(b))]
    return math.expm1(_bound(*logs))


def _bound(a: Estimate, b: Estimate) -> float:
    """The largest difference, either way, that the intervals leave open."""
    up = math.hypot(a.high - a.value, b.value - b.low)
    down = math.hypot(a.value - a.low, b.high - b.value)
    return max(a.value - b.value + up, b.value - a.value + down)


def _losses(
    summary: Summary, alike: Alike, pairs: Sequence[Pair], assignments: Assignments, name: str, choice: Scalar
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
    """Whether a gate, which stops on what is certain alone, stopped it and not its rival; or its rival is worse in
    nothing that can be told, and better for certain in something that was measured."""
    if rival.status != "complete" or not summary.is_feasible(rival):
        return False
    if evaluation.stop is not None:
        return True
    better = False
    for name in dict.fromkeys((*_MEASURED, *(o.metric for o in summary.objectives))):
        known = all(name in summary.numbers(e) for e in (rival, evaluation))
        if not known or alike.in_metric(rival, evaluation, name):
            continue
        if cost_of(rival, name, summary.baseline_id) > cost_of(evaluation, name, summary.baseline_id):
            return False
        better = better or name not in SERVICE
    return better


def _edge(summary: Summary, assignments: Assignments, name: str, offered: Sequence[Scalar]) -> str:
    """Of the recommended candidate, where every member of the front that has the parameter has the same choice."""
    numbers = [c for c in offered if isinstance(c, int | float) and not isinstance(c, bool)]
    if summary.recommended is None or len(numbers) != len(offered) or len(numbers) < 2:
        return ""
    chosen = assignments.get(summary.recommended.candidate_id, {}).get(name)
    having = [assignments.get(m.id, {}).get(name) for m in summary.front if m.id != summary.baseline_id]
    if chosen is None or any(choice not in (None, chosen) for choice in having):
        return ""
    level = summary.recommended.evidence
    if chosen not in (min(numbers), max(numbers)) or chosen in (0, 1) or level in (None, "predicted", "modelled"):
        return ""
    end, beyond = ("largest", "larger") if chosen == max(numbers) else ("smallest", "smaller")
    return f"{chosen} won and is the {end} on offer: a {beyond} one may be better"
