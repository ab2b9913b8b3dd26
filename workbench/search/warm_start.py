"""Warm start: what earlier sweeps of the workspace learned, as expectations and first proposals of a new one.

Nothing of it is a measurement of this sweep. Numbers are kept as ratios to a float baseline (differences, where ratios
mean nothing), which carry over from one model or machine to the next far better than milliseconds; they become numbers
again by this sweep's own baseline, once that is measured. What is taken is noted in the sweep's folder at its first
run, so that a sweep that goes on expects what it expected before, whatever has been swept since.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import WARM_START, Journal
from workbench.evaluation.journal_entries import entry_ids
from workbench.evaluation.sweep_folders import all_journals
from workbench.inputs.experiment import Experiment
from workbench.search.earlier import (
    Subject,
    alike,
    alike_machine,
    evaluations_of,
    read_subject,
    subject_of,
    write_subject,
)
from workbench.search.front import front_of, with_baseline_drop
from workbench.search.outlook import errors_of
from workbench.search.parts import Goals, Prior, Seen, logged
from workbench.space.space import assignment_like
from workbench.values.dimension import Scalar
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError
from workbench.values.results import Evaluation

_log = logging.getLogger(__name__)

MOST_SWEEPS = 3
MOST_CANDIDATES = 40
"""Of each sweep: its front, and others evenly through what it tried. What is expected of a proposal is computed from
all of them again and again, and takes time with the cube of their number."""
MOST_FIRST = 4
_FIRST_SHARE = 0.2
"""Of the budget: if the earlier sweep misleads, no more is lost."""
LEAST_ALIKE = 0.1
_NOT_OURS = "their figures count as no measurement (off with warm_start: none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One candidate of an earlier sweep.

    Attributes:
        ratios: metric → number over the baseline's, or minus the baseline's where differences count; `errors` likewise.
    """

    assignment: Mapping[str, Scalar]
    ratios: Mapping[str, float]
    errors: Mapping[str, float]
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An earlier sweep.

    Attributes:
        alike: how much it is expected to agree with this one, within 0 and 1.
        why: of which model and machine it is.
        scored: its primary metric and the unit; where this sweep has another, accuracies say nothing.
        first: its front, best worth proposing first.
    """

    name: str
    alike: float
    why: str
    scored: str
    lessons: tuple[Lesson, ...]
    first: tuple[Mapping[str, Scalar], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Attributes:
    left_out: sweeps that tell nothing here, and why.
    """

    sources: tuple[Source, ...] = ()
    left_out: tuple[str, ...] = ()

    def first(self, most: int = MOST_FIRST) -> list[tuple[Mapping[str, Scalar], str]]:
        """(assignment, name of its sweep) of what is proposed first: the sweeps take turns, the most alike begins."""
        found: list[tuple[Mapping[str, Scalar], str]] = []
        for place in range(max((len(s.first) for s in self.sources), default=0)):
            for source in self.sources:
                if place < len(source.first) and all(dict(a) != dict(source.first[place]) for a, _ in found):
                    found.append((source.first[place], source.name))
        return found[:most]


def fixed(experiment: Experiment, bench: Bench) -> WarmStart:
    """The warm start of a sweep: as its first run noted it, else as the workspace gives it now, which is noted, and so
    is what this sweep is about.

    Raises:
        ConfigError: `warm_start:` names an experiment that was never swept here.
        ToolchainError: the disk cannot be written.
    """
    subject = read_subject(bench.journal)
    if subject is None:
        subject = subject_of(experiment.model)
        write_subject(bench.journal, subject)
    path = bench.journal.root / WARM_START
    if experiment.warm_start is not None and path.exists():
        return expected(experiment, bench)
    found = _gathered(experiment, bench, subject)
    if experiment.warm_start is not None:
        write_sealed(path, encode(found))
    return found


def expected(experiment: Experiment, bench: Bench) -> WarmStart:
    """As `fixed`, and nothing is noted."""
    path = bench.journal.root / WARM_START
    if experiment.warm_start is None or not path.exists():
        return _gathered(experiment, bench, read_subject(bench.journal))
    try:
        return decode(WarmStart, read_sealed(path))
    except (Unsound, DecodeError) as error:
        _log.warning("%s: %s. The sweep goes on without what earlier ones learned.", path, error)
        return WarmStart()


def _gathered(experiment: Experiment, bench: Bench, subject: Subject | None) -> WarmStart:
    """What the workspace's earlier sweeps tell; under a second for ten of them. Nothing to one that has begun."""
    if experiment.warm_start is None or entry_ids(bench.journal.root, "validation"):
        return WarmStart()
    journals = _asked(experiment, bench.journal)
    here = subject or (subject_of(experiment.model) if journals else None)
    judged = []
    for name, journal in journals:
        assert here is not None, "it was made where there are others"
        weight, why = alike(here, read_subject(journal), same_question=journal.identity() == experiment.identity)
        judged.append((weight, why, f"{name} {journal.root.name}", journal))
    sources: list[Source] = []
    left_out: list[str] = []
    for weight, why, title, journal in sorted(judged, key=lambda one: -one[0]):  # of equal ones, the newest first
        if len(sources) == MOST_SWEEPS:
            break
        learned = _learned(experiment, bench, journal, title)
        if isinstance(learned, str):
            left_out.append(f"{title} is left out: {learned}")
            continue
        machine, with_what = learned[1]
        if weight * machine >= LEAST_ALIKE:
            sources.append(replace(learned[0], alike=weight * machine, why=f"{why}, {with_what}"))
        else:
            left_out.append(f"{title} is left out: {why}, {with_what}")
    return WarmStart(sources=tuple(sources), left_out=tuple(left_out))


def _asked(experiment: Experiment, mine: Journal) -> list[tuple[str, Journal]]:
    """The sweeps that come into question: those that are named, or all; never the one that asks."""
    wanted = experiment.warm_start or ()
    there = [(name, j) for name, j in all_journals(experiment.workspace) if j.root.resolve() != mine.root.resolve()]
    for name in wanted:
        if all(name != other for other, _ in there):
            raise ConfigError(
                f"there is no earlier sweep of {name!r} in {experiment.workspace}.",
                file=experiment.path,
                key="warm_start",
                hint="Leave the key out to learn from any sweep that fits, or write none.",
            )
    return [(name, journal) for name, journal in there if not wanted or name in wanted]


def _learned(
    experiment: Experiment, bench: Bench, journal: Journal, title: str
) -> tuple[Source, tuple[float, str]] | str:
    """What one sweep tells, and how alike its machine is; or why it tells nothing."""
    known, unread = evaluations_of(journal)
    if not known:
        return f"none of its {unread} evaluations can be read" if unread else "it measured nothing"
    baseline = next((e for e in known.values() if _is_baseline(e)), None)
    if baseline is None:
        return "its float baseline was not measured"
    if len(known) == 1:
        return "it measured its float baseline alone"
    if baseline.candidate.target != experiment.targets[0]:
        return f"its float baseline runs on {baseline.candidate.target}"
    if baseline.toolchain.emulated != bench.toolchains[experiment.targets[0]].emulated:
        return "measured times say nothing of modelled ones, nor the other way round"
    source = learned_from(experiment, known, baseline, title)
    if source is None:
        return "none of its candidates is one of this space"
    chains = {e.candidate.target: e.toolchain for e in known.values() if e.candidate.target in experiment.targets}
    return source, alike_machine(bench.toolchains, chains)


def learned_from(
    experiment: Experiment, known: Mapping[str, Evaluation], baseline: Evaluation, title: str
) -> Source | None:
    """What the evaluations of another sweep tell; None where this space has none of its candidates.

    Args:
        baseline: its float baseline, complete; where it measured this sweep's, ratios are to that.
    """
    mapped = {i: m for i, e in known.items() if (m := _mapped(experiment, e, baseline)) is not None}
    same = next((known[i] for i, m in mapped.items() if m == experiment.baseline_assignment), None)
    against = same if same is not None and same.status == "complete" else baseline
    told = {i: _lesson(experiment, known[i], assignment, against) for i, assignment in mapped.items()}
    lessons = {i: lesson for i, lesson in told.items() if lesson is not None}
    if len(lessons) < 2:
        return None
    front = [e.candidate.id for e in front_of(experiment, known) if e.candidate.id in lessons]
    accuracy = baseline.measurement.accuracy
    assert accuracy is not None, "a complete evaluation has one"
    return Source(
        name=title,
        alike=1.0,
        why="",
        scored=f"{accuracy.primary} {accuracy.unit}",
        lessons=tuple(lessons[i] for i in _some(list(lessons), front)),
        first=tuple(mapped[i] for i in _spread(front) if mapped[i] != experiment.baseline_assignment),
    )


def _is_baseline(evaluation: Evaluation) -> bool:
    accuracy = evaluation.measurement.accuracy
    if evaluation.status != "complete" or accuracy is None:
        return False
    return accuracy.comparison is None or (bool(accuracy.reference) and accuracy.against_baseline is None)


def _mapped(experiment: Experiment, evaluation: Evaluation, baseline: Evaluation) -> dict[str, Scalar] | None:
    """Its choices in this space; None where this space has no such candidate."""
    found = assignment_like(experiment.space, evaluation.candidate)
    if found is None or any(name.endswith(".sequence_bins") for name in found):
        return found
    # the service chooses the lengths here: what was measured with others than the baseline's tells of them instead
    return found if evaluation.candidate.sequence_bins == baseline.candidate.sequence_bins else None


def _lesson(
    experiment: Experiment, evaluation: Evaluation, assignment: Mapping[str, Scalar], against: Evaluation
) -> Lesson | None:
    if evaluation.failure is not None:
        return (
            None if evaluation.failure.transient else Lesson(assignment=assignment, ratios={}, errors={}, failed=True)
        )
    base, numbers = with_baseline_drop(experiment, against), with_baseline_drop(experiment, evaluation)
    if evaluation.candidate.id == against.candidate.id:
        for name in ("accuracy_drop_pp", "accuracy_drop"):
            numbers.setdefault(name, 0.0)
    for name in ("accuracy_drop_pp", "accuracy_drop"):
        base.setdefault(name, 0.0)
    errors = errors_of(evaluation, numbers)
    ratios: dict[str, float] = {}
    widths: dict[str, float] = {}
    for metric in Goals(objectives=experiment.objectives, constraints=experiment.constraints).metrics:
        if metric not in numbers or metric not in base:
            continue
        if not logged(metric):
            ratios[metric], widths[metric] = numbers[metric] - base[metric], errors.get(metric, 0.0)
        elif base[metric] > 0:
            ratios[metric], widths[metric] = numbers[metric] / base[metric], errors.get(metric, 0.0) / base[metric]
    finite = {m: r for m, r in ratios.items() if math.isfinite(r) and math.isfinite(widths[m])}
    return Lesson(assignment=assignment, ratios=finite, errors={m: widths[m] for m in finite}) if finite else None


def _some(ids: Sequence[str], front: Sequence[str]) -> list[str]:
    """At most `MOST_CANDIDATES`, the front among them, in their own order."""
    rest = [i for i in ids if i not in front]
    room = max(0, MOST_CANDIDATES - len(front))
    step = max(1.0, len(rest) / room) if room else math.inf
    wanted = {*front[:MOST_CANDIDATES], *(rest[int(k * step)] for k in range(room) if int(k * step) < len(rest))}
    return [i for i in ids if i in wanted]


def _spread(front: Sequence[str]) -> list[str]:
    """The two ends first, then what lies in the middle of the widest gap."""
    order: list[int] = []
    left = list(range(len(front)))
    while left:
        gaps = {i: min((abs(i - taken) for taken in order), default=0) for i in left}
        place = left[0] if not order else max(left, key=lambda i: gaps[i])
        order.append(place)
        left.remove(place)
    return [front[i] for i in order]


def warm_words(experiment: Experiment, warm: WarmStart) -> list[str]:
    """Sentences for the screen; none where there was nothing to learn from."""
    said = [
        f"{len(s.lessons)} candidates of {s.name} say what to expect ({s.why}); expected agreement {s.alike:.2f} of 1, "
        "corrected by what is measured here"
        for s in warm.sources
    ]
    if first := first_proposals(experiment, warm):
        said.append(f"after the presets, {len(first)} that were on their fronts; {_NOT_OURS}")
    elif warm.sources:
        said.append(_NOT_OURS)
    return [*said, *warm.left_out]


def first_proposals(experiment: Experiment, warm: WarmStart) -> list[tuple[Mapping[str, Scalar], str]]:
    """(Assignment, why it is proposed), few enough for the budget."""
    most = min(MOST_FIRST, int(_FIRST_SHARE * experiment.trials))
    return [(assignment, f"was on the front of {name}") for assignment, name in warm.first(most)]


def priors(experiment: Experiment, warm: WarmStart, known: Mapping[str, Evaluation]) -> list[Prior]:
    """The lessons in this sweep's own numbers; none before its baseline is measured."""
    baseline = known.get(experiment.baseline.id)
    if baseline is None or baseline.measurement.accuracy is None or baseline.status != "complete":
        return []
    base, accuracy = with_baseline_drop(experiment, baseline), baseline.measurement.accuracy
    scored = f"{accuracy.primary} {accuracy.unit}"
    return [
        Prior(
            alike=source.alike,
            seen=tuple(_seen(lesson, base, scored=source.scored == scored) for lesson in source.lessons),
        )
        for source in warm.sources
    ]


def _seen(lesson: Lesson, base: Mapping[str, float], *, scored: bool) -> Seen:
    numbers: dict[str, float] = {}
    errors: dict[str, float] = {}
    for metric, ratio in lesson.ratios.items():
        if metric not in base or (metric.startswith("accuracy") and not scored):
            continue
        scale = base[metric] if logged(metric) else 1.0
        numbers[metric] = ratio * scale if logged(metric) else ratio + base[metric]
        errors[metric] = lesson.errors[metric] * scale
    return Seen(assignment=lesson.assignment, numbers=numbers, errors=errors, failed=lesson.failed)
