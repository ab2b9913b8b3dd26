"""The search loop: ask the sampler for a candidate, evaluate it, tell the result, until the budget is spent.

The loop knows nothing of stages. Everything it learns lies in the journal before it is told to Optuna, so that a
killed sweep goes on where it stopped and loses at most the candidate in flight.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import optuna
from optuna.samplers import GPSampler
from optuna.trial import TrialState

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors import Executor, InProcess
from workbench.search.ladder import SMOKE_CONSTRAINT, failed_evaluation
from workbench.search.sampler import (
    FORBIDDEN,
    REPEAT,
    UnreadableStudy,
    next_trial,
    open_study,
    queued,
    repeats_in_a_row,
    told_candidates,
    trials_left_open,
)
from workbench.space.space import (
    EXACT_LIMIT,
    Forbidden,
    assignment_of,
    build,
    combinations,
    draw,
    raw_size,
    size,
    suggest,
)
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar
from workbench.values.errors import MAX_CRASHES, ConfigError, CrashError, ToolchainError
from workbench.values.objectives import METRICS, feasible, pareto_front, violations
from workbench.values.results import MAX_ATTEMPTS, Evaluation, Split, metrics

_log = logging.getLogger(__name__)

FORBIDDEN_CONSTRAINT = "forbidden"
FAILED_CONSTRAINT = "failed"
MAX_REPEATS = 15
"""So many proposals in a row that are known or forbidden, and the loop draws an unseen candidate itself."""
CRASHES = "crashes"
"""Attribute of a trial: how often that was so."""


class Listener(Protocol):
    """Told what happens, in order, from the sweep's own thread. Must not raise for a single candidate's sake."""

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        """After an evaluation is in the journal; `reused` when an earlier run of this sweep made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd:
    """Why and with what a sweep ended.

    Attributes:
        reason: 'budget', 'timeout' or 'exhausted' (every candidate of the space has been evaluated).
        new: evaluations made by this run, second attempts among them; `reused` were there before.
        search_s: wall time of the search, `overhead_s` of it outside evaluations.
        proposals: what the sampler proposed, repeats and forbidden ones included.
    """

    reason: str
    new: int
    reused: int
    search_s: float
    overhead_s: float
    proposals: int
    repeats: int
    forbidden: int


def run_sweep(
    experiment: Experiment,
    bench: Bench,
    *,
    trials: int | None = None,
    timeout_s: float | None = None,
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
) -> SweepEnd:
    """Search until `trials` distinct candidates are evaluated in all, the time is up, or the space is empty.

    The caller holds the journal's lock, and has had damaged files set aside. Candidates whose evaluation was lost so
    are evaluated again whatever the budget, and a study that was lost is told what is known.

    However a run ends, running again goes on with the candidate in flight, and
    tries candidates again that failed by a timeout, a killed child or a full disk. Only a candidate whose own
    evaluation process died `MAX_CRASHES` times, while this one lived, is given up.

    Args:
        executor: where evaluations run; in this process when None, and then a crash of one ends the sweep.

    Raises:
        ConfigError: what this sweep measured before, it measured with another toolchain.
        ToolchainError: the machine is at fault; everything told so far is kept.
    """
    budget = experiment.trials if trials is None else trials
    began = time.perf_counter()
    deadline = began + (experiment.timeout_s if timeout_s is None else timeout_s)
    known = bench.journal.evaluations()
    _refuse_other_toolchain(experiment, bench, known)
    study = _open_study(experiment, bench)
    unlucky = [known.pop(e.candidate.id) for e in list(known.values()) if e.deserves_another]
    reused = len(known)
    for evaluation in known.values():
        for listener in listeners:
            listener.evaluated(evaluation, reused=True)
    executor = executor or InProcess(experiment, bench)
    loop = _Loop(experiment, bench, study, known, listeners, executor)
    reason = "budget"
    everything = size(experiment.space)
    with _writable(bench.journal.root):
        loop.tell_again()
        loop.try_again(unlucky)
        loop.evaluate_again(bench.journal.lost())
        while len(known) < budget or loop.outstanding:
            if everything.exact and len(known) >= everything.candidates:
                reason = "exhausted"
                break
            if time.perf_counter() >= deadline:
                reason = "timeout"
                break
            if not loop.step():
                reason = "exhausted"
                break
        bench.journal.keep_study()
    search_s = time.perf_counter() - began
    return SweepEnd(
        reason=reason,
        new=len(known) - reused,
        reused=reused,
        search_s=search_s,
        overhead_s=search_s - loop.evaluate_s,
        proposals=loop.proposals,
        repeats=loop.repeats,
        forbidden=loop.forbidden,
    )


def _open_study(experiment: Experiment, bench: Bench) -> optuna.Study:
    """The sweep's study, sound as far as it is read from here on.

    Only what a killed run wrote last is not covered by a digest; where Optuna cannot read it, the study begins anew and
    is told what is known.
    """
    journal = bench.journal
    try:
        study = open_study(experiment, journal.study)
    except UnreadableStudy as error:
        _log.warning("%s: %s. It is set aside, and what is known is told to a new one.", journal.study, error)
        journal.drop_study()
        study = open_study(experiment, journal.study)
    journal.keep_study()
    return study


def _refuse_other_toolchain(experiment: Experiment, bench: Bench, known: Mapping[str, Evaluation]) -> None:
    """Times of another machine or runtime must not stand beside new ones in one front."""
    for evaluation in known.values():
        here = bench.toolchain(evaluation.candidate)
        if evaluation.toolchain.fingerprint != here.fingerprint:
            raise ConfigError(
                f"this sweep was measured on {evaluation.toolchain.device} with "
                f"{dict(evaluation.toolchain.components)}; here is {here.device} with {dict(here.components)}.",
                file=experiment.path,
                hint="Start a new one with --fresh (the old results are kept).",
            )


def front_of(experiment: Experiment, evaluations: Mapping[str, Evaluation]) -> list[Evaluation]:
    """Complete and feasible evaluations that no other dominates, in order of the first objective."""
    able = [e for e in evaluations.values() if is_feasible(experiment, e)]
    points = [[metrics(e)[o.metric] for o in experiment.objectives] for e in able]
    directions = [METRICS[o.metric].direction for o in experiment.objectives]
    front = [able[i] for i in pareto_front(points, directions)]
    return sorted(front, key=lambda e: metrics(e)[experiment.objectives[0].metric])


def is_feasible(experiment: Experiment, evaluation: Evaluation) -> bool:
    """Complete, all objectives measured, every constraint measured and met."""
    if evaluation.status != "complete":
        return False
    numbers = with_baseline_drop(experiment, evaluation)
    wanted = [o.metric for o in experiment.objectives] + [c.metric for c in experiment.constraints]
    return all(name in numbers for name in wanted) and feasible(experiment.constraints, numbers)


def confirm(
    experiment: Experiment,
    bench: Bench,
    front: Sequence[Evaluation],
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
) -> dict[str, Evaluation]:
    """Measure front members and the baseline again in full on the holdout split, with fresh timing.

    Members confirmed before (by this sweep, with the same journal) are not measured again, unless that failed by no
    fault of theirs.

    Args:
        executor: where evaluations run; in this process when None.
    """
    executor = executor or InProcess(experiment, bench)
    confirmed: dict[str, Evaluation] = {}
    candidates = [experiment.baseline, *(e.candidate for e in front)]
    for candidate in {c.id: c for c in candidates}.values():
        found = bench.journal.evaluation(candidate.id, "holdout")
        if found is None or found.deserves_another:
            attempt = 1 if found is None else found.attempt + 1
            confirming = partial(executor.evaluate, candidate, split="holdout", gates=False)
            found = _survived(experiment, candidate, bench, "holdout", confirming)
            found = replace(found, attempt=max(attempt, found.attempt))
            bench.journal.write(found)
            for listener in listeners:
                listener.evaluated(found, reused=False)
        confirmed[candidate.id] = found
    return confirmed


class _Loop:
    """The state of one run of the loop: the study, what is known, and counters."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        study: optuna.Study,
        known: dict[str, Evaluation],
        listeners: Sequence[Listener],
        executor: Executor,
    ) -> None:
        self.experiment, self.bench, self.study, self.known = experiment, bench, study, known
        self.listeners, self.executor = listeners, executor
        self.proposals = self.repeats = self.forbidden = 0
        self.evaluate_s = 0.0
        self.attempts: dict[str, int] = {}  # made so far at candidates that are tried again
        self.left_open = trials_left_open(study, known)

    @property
    def outstanding(self) -> bool:
        """Whether a second attempt is still to come; the budget counts candidates, so it does not stand in the way."""
        return any(candidate_id not in self.known for candidate_id in self.attempts)

    def step(self) -> bool:
        """Evaluate one candidate nobody has evaluated; False when there is none left."""
        while repeats_in_a_row(self.study) < MAX_REPEATS or self.left_open or queued(self.study):
            if self._try_one():
                return True
        unseen = _unseen(self.experiment, self.known)
        if unseen is None:
            return False
        self.study.enqueue_trial(dict(unseen))
        return self._try_one()

    def _try_one(self) -> bool:
        """Ask once; True when that led to an evaluation."""
        trial, candidate = self._ask()
        if candidate is None:
            return False
        if candidate.id in self.known:
            # not a repeat: an ended run that had measured it, and not yet told it
            repeat = candidate.id in told_candidates(self.study)
            self.repeats += repeat
            self._tell(trial, self.known[candidate.id], repeat=repeat)
            return False
        self._evaluate(trial, candidate)
        return True

    def _ask(self) -> tuple[optuna.Trial, Candidate | None]:
        trial = next_trial(self.study, self.experiment, self.left_open)
        self.proposals += 1
        space = self.experiment.space
        assignment = suggest(space, lambda name, choices: trial.suggest_categorical(name, list(choices)))
        try:
            candidate = build(space, assignment)
        except Forbidden as error:
            self.forbidden += 1
            trial.set_user_attr(FORBIDDEN, str(error))
            self._set_constraints(trial, {FORBIDDEN_CONSTRAINT: 1.0})
            self.study.tell(trial, state=TrialState.PRUNED)
            return trial, None
        trial.set_user_attr("candidate", candidate.id)
        return trial, candidate

    def _evaluate(self, trial: optuna.Trial, candidate: Candidate) -> None:
        climb = partial(self.executor.evaluate, candidate, incumbents=front_of(self.experiment, self.known))
        began = time.perf_counter()
        try:
            evaluation = _survived(
                self.experiment,
                candidate,
                self.bench,
                "validation",
                climb,
                crashes=int(trial.user_attrs.get(CRASHES, 0)),
                crashed=lambda crashes: trial.set_user_attr(CRASHES, crashes),
            )
        finally:  # after an exception the trial stays open, and the next run goes on with it
            self.evaluate_s += time.perf_counter() - began
        evaluation = replace(evaluation, attempt=max(evaluation.attempt, self.attempts.get(candidate.id, 0) + 1))
        self.bench.journal.write(evaluation)
        self.known[candidate.id] = evaluation
        self._tell(trial, evaluation, repeat=False)
        for listener in self.listeners:
            listener.evaluated(evaluation, reused=False)

    def try_again(self, unlucky: Sequence[Evaluation]) -> None:
        """Queue candidates whose last attempt deserves another.

        Optuna keeps the failed trial beside the new one: a trial that was told cannot be taken back.
        """
        for evaluation in unlucky:
            if self._queue(evaluation.candidate.id, evaluation.candidate):
                self.attempts[evaluation.candidate.id] = evaluation.attempt

    def evaluate_again(self, lost: Mapping[str, Candidate | None]) -> None:
        """Queue candidates whose evaluation was lost; one that nobody can name any more is let go."""
        for candidate_id, candidate in lost.items():
            if self._queue(candidate_id, candidate):
                self.attempts.setdefault(candidate_id, 0)
            else:
                _log.warning(
                    "The evaluation of %s is lost, and so are its settings: it cannot be repeated.", candidate_id[:12]
                )
                self.bench.journal.forget(candidate_id)

    def tell_again(self) -> None:
        """Queue what is known but was not told to this study, since the one before was lost; `_try_one` tells it."""
        told = told_candidates(self.study)
        for candidate_id, evaluation in self.known.items():
            if candidate_id not in told:
                self._queue(candidate_id, evaluation.candidate)

    def _queue(self, candidate_id: str, candidate: Candidate | None) -> bool:
        """Have a candidate asked for, unless it waits already; False where nothing says what its settings are."""
        trials = [t for t in self.study.get_trials(deepcopy=False) if t.user_attrs.get("candidate") == candidate_id]
        if any(not trial.state.is_finished() for trial in trials):
            return True
        assignment = trials[-1].params if trials else None
        if assignment is None and candidate is not None:
            assignment = assignment_of(self.experiment.space, candidate)
        if assignment is None:
            return False
        self.study.enqueue_trial(dict(assignment), user_attrs={"candidate": candidate_id})
        return True

    def _tell(self, trial: optuna.Trial, evaluation: Evaluation, *, repeat: bool) -> None:
        """Values when every objective was measured; else the violations alone, in a pruned trial.

        TPE learns from a pruned trial's constraints as much as from a complete one (optuna.md §4, table B).
        GPSampler reads complete trials only, so there the worst values seen so far stand in; they exist in Optuna's
        study alone, under the attribute `placeholder`.
        """
        numbers = with_baseline_drop(self.experiment, evaluation)
        violated: dict[str, float] = {}
        if evaluation.status == "complete":
            violated.update(violations(self.experiment.constraints, numbers))
        if evaluation.stop is not None:
            violated.update(evaluation.stop.violations)
        if evaluation.failure is not None:
            violated[FAILED_CONSTRAINT] = 1.0
        trial.set_user_attr("status", evaluation.status)
        if repeat:
            trial.set_user_attr(REPEAT, True)
        self._set_constraints(trial, violated)
        names = [objective.metric for objective in self.experiment.objectives]
        if evaluation.status != "failed" and all(name in numbers for name in names):
            self.study.tell(trial, [numbers[name] for name in names])
        elif isinstance(self.study.sampler, GPSampler) and (worst := self._worst_values()) is not None:
            trial.set_user_attr("placeholder", True)
            self.study.tell(trial, worst)
        else:
            self.study.tell(trial, state=TrialState.PRUNED)

    def _worst_values(self) -> list[float] | None:
        complete = [metrics(e) for e in self.known.values() if e.status == "complete"]
        if not complete:
            return None
        worst = {"minimize": max, "maximize": min}
        names = [o.metric for o in self.experiment.objectives]
        return [worst[METRICS[name].direction](numbers[name] for numbers in complete) for name in names]

    def _set_constraints(self, trial: optuna.Trial, violated: Mapping[str, float]) -> None:
        """Every trial carries every name (GPSampler refuses studies where they differ); unknown counts as met."""
        names = [constraint.metric for constraint in self.experiment.constraints]
        there = trial.constraints  # of a run that was killed while it told this very result; they cannot be set twice
        for name in (*names, SMOKE_CONSTRAINT, FORBIDDEN_CONSTRAINT, FAILED_CONSTRAINT):
            if name not in there:
                trial.set_constraint(name, float(violated.get(name, 0.0)))


def _survived(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    split: Split,
    climb: Callable[[], Evaluation],
    *,
    crashes: int = 0,
    crashed: Callable[[int], None] = lambda crashes: None,
) -> Evaluation:
    """What became of a candidate, which takes its evaluation process down at most `MAX_CRASHES` times.

    Args:
        crashes: of this candidate so far.
        crashed: told the new count before anything else is done, so that it survives this process.
    """
    while True:
        try:
            return climb()
        except CrashError as crash:
            crashes += 1
            crashed(crashes)
            if crashes < MAX_CRASHES:
                _log.warning("%s, at %s: %s It is evaluated once more.", candidate.short_id, crash.stage, crash)
                continue
            told = CrashError(f"it crashed {crashes} times; {crash}", stage=crash.stage, log_path=crash.log_path)
            return replace(failed_evaluation(experiment, candidate, bench, split, told), attempt=MAX_ATTEMPTS)


def with_baseline_drop(experiment: Experiment, evaluation: Evaluation) -> dict[str, float]:
    """`results.metrics`, with the baseline's drop against itself made explicit: zero, by definition."""
    numbers = metrics(evaluation)
    if evaluation.candidate.id == experiment.baseline.id and "accuracy" in numbers:
        numbers.setdefault("accuracy_drop_pp", 0.0)
    return numbers


def _unseen(experiment: Experiment, known: Mapping[str, Evaluation]) -> dict[str, Scalar] | None:
    """An assignment whose candidate is possible and not evaluated: any one of a small space, a draw of a large one."""
    rng = random.Random(experiment.seed + len(known))
    if raw_size(experiment.space) <= EXACT_LIMIT:
        assignments = list(combinations(experiment.space))
        rng.shuffle(assignments)
    else:
        assignments = [draw(experiment.space, rng) for _ in range(EXACT_LIMIT)]
    for assignment in assignments:
        try:
            if build(experiment.space, assignment).id not in known:
                return assignment
        except Forbidden:
            continue
    return None


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Translate a disk that cannot be written into the machine's fault; everything written before is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise
        free_mb = shutil.disk_usage(folder).free / 1e6
        raise ToolchainError(
            f"{folder} cannot be written: {error.strerror} ({free_mb:.1f} MB free). What was measured is kept: make "
            "room (`workbench cache --prune`) and run the same command again."
        ) from error
