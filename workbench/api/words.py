"""What is said of a sweep before it begins: what it would cost."""

from __future__ import annotations

from workbench.report.words import count_of
from workbench.search.effort import Effort
from workbench.search.first_look import FIRST
from workbench.search.forecast import Distinct
from workbench.search.plan import Plan
from workbench.values.system.steps import minutes


def plan_lines(made: Plan) -> list[str]:
    bound = "" if made.space.exact else "at most "
    files, call = ("checkpoints", "window") if made.language else ("compiles", "call")
    cached = ", ".join(f"{count} {kind}" for kind, count in made.store_entries.items()) or "nothing yet"
    return [
        f"space:      {bound}{made.space.candidates} candidates, {made.space.compiles} distinct {files}",
        *(f"service:    {sentence}" for sentence in made.service),
        f"this sweep: {made.trials} candidates, {made.done} done, {made.todo} to do (at most {made.compiles} {files})",
        *([f"work:       {distinct_words(made.distinct)}"] if made.todo and not made.language else []),
        f"time:       about {minutes(made.total_s)} to search {_on_cards(made)}({made.candidate_s:.1f} s a candidate, "
        f"from {made.basis}; one float {call} takes {made.call_ms:.2f} ms)" + _whole(made),
        f"limit:      {_division(made)}",
        f"disk:       at most {made.disk_bytes / 1e9:.2f} GB of {made.free_bytes / 1e9:.1f} GB free",
        f"memory:     up to {made.memory_bytes / 1e9:.2f} GB{_of_available(made)}",
        f"store:      {cached}",
        *(f"scoring:    {sentence}" for sentence in made.scoring),
        *(f"learned:    {sentence}" for sentence in made.learned),
        *(f"mind:       {warning}" for warning in made.warnings),
    ]


def distinct_words(distinct: Distinct) -> str:
    """'14 candidates come to about 12 different outputs and 9 structures to be timed; about 12 compiler runs'."""
    files = "compiler runs, one for each batch and length" if distinct.one_file_a_shape else "compiler runs"
    outputs, structures = count_of(distinct.outputs, "different output"), count_of(distinct.structures, "structure")
    return (
        f"{count_of(distinct.candidates, 'candidate')} come to about {outputs} and {structures} to be timed, "
        f"{distinct.compiler_runs} {files}; told by their settings, before any is compiled"
    )


def planned_words(made: Plan, took_s: float, compiled: int) -> str:
    """'Planned 3 min 09 s to 6 min 45 s, took 4 min 10 s.', and compiler runs where each batch and length is one.

    Args:
        compiled: runs of the compiler, for all candidates of the sweep.
    """
    files = ""
    if made.distinct.one_file_a_shape and not made.done:
        files = f"; {count_of(made.distinct.compiler_runs, 'compiler run')} planned, {compiled} made"
    return f"Planned {_between(made)}, took {minutes(took_s)}{files}."


def _between(made: Plan) -> str:
    low, high = (minutes(each) for each in made.whole_between_s)
    return low if low == high else f"{low} to {high}"


def _whole(made: Plan) -> str:
    """', 4 min 30 s with all that comes before and after', or what the limit leaves of it."""
    if not made.whole_s:
        return ""
    if made.total_s > made.division.search_s:
        return f"; the limit leaves it {_between(made)} in all"
    return f"; {_between(made)} from its start to the report, the confirmation included"


def _on_cards(made: Plan) -> str:
    return f"on {made.cards} cards at once " if made.cards > 1 else ""


def _of_available(made: Plan) -> str:
    return "" if made.available_bytes is None else f" of {made.available_bytes / 1e9:.1f} GB that can be had"


def _division(made: Plan) -> str:
    """'10 min 00 s in all: search until 6 min 32 s, then at most 3 min 20 s to confirm …'."""
    division = made.division
    members = count_of(division.members, "front member")
    confirmed = f"confirm the float baseline and up to {members} on held-out data"
    if division.members == 0:
        confirmed = "confirm on held-out data, too little for one front member"
    cut = _less(division.effort, loads=made.serves) if division.members else ""
    words = f"{minutes(division.limit_s)} in all: search until {minutes(division.search_s)}"
    words += f"{_less(made.effort, loads=False)}, then at most "
    words += f"{minutes(division.confirmation_s)} to {confirmed}{cut}, {minutes(division.report_s)} to report"
    room = int(max(0.0, division.search_s - made.once_s) / made.candidate_s) if made.candidate_s else made.todo
    if made.once_s:
        words += f". Of the search, some {minutes(made.once_s)} go once to what serving costs this host"
    if room < min(1 + FIRST, made.todo):
        words += f". Too short for the float baseline and {FIRST} INT8 candidates: allow {minutes(made.least_s)}"
    elif room < made.todo:
        words += f". Room for about {count_of(room, 'candidate')} of them"
    return words


def _less(effort: Effort, *, loads: bool) -> str:
    less = [
        *(["fewer timed calls"] if effort.calls < 1 else []),
        *(["shorter loads"] if effort.load < 1 and loads else []),
        *(["fewer samples"] if effort.samples < 1 else []),
    ]
    return f", with {' and '.join(less)}" if less else ""
