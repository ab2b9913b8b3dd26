"""The search loop: ask the sampler for a candidate, evaluate it, tell the result, until the budget is spent.

The loop knows nothing of stages. Everything it learns lies in the journal before it is told to Optuna, so that a
killed sweep goes on where it stopped and loses at most the candidate in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

import optuna

from workbench.evaluation.bench import Bench
from workbench.evaluation.facts import instead_of, loans_for, owed
from workbench.inputs.experiment import Experiment
from workbench.search.asking import (
    next_trial,
    queue,
    queued,
    repeats_in_a_row,
    told_candidates,
    trials_left_open,
    unseen,
    waiting,
    why_now,
)
from workbench.search.disk import writable
from workbench.search.executors import Executor, InProcess, Task, TimeUp
from workbench.search.front import front_of
from workbench.search.promising import promising
from workbench.search.retry import survived
from workbench.search.study_log import sound_study
from workbench.search.telling import tell, tell_forbidden
from workbench.search.time_limit import RunTime
from workbench.search.warm_start import WarmStart, first_proposals, fixed, priors
from workbench.space.space import Forbidden, build, size, suggest
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.facts import Fact
from workbench.values.results import Evaluation

_log = logging.getLogger(__name__)

MAX_REPEATS = 15
"""So many proposals in a row that are known or forbidden, and the loop draws an unseen candidate itself."""
CRASHES = "crashes"
"""Attribute of a trial: how often its candidate took the evaluation process down."""


class Listener(Protocol):
    """Told what happens, in order, from the sweep's own thread. Must not raise for a single candidate's sake."""

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        """After an evaluation is in the journal; `reused` when an earlier run of this sweep made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """A candidate that was in flight when a run ended, and the stage it was in; the next run begins with it."""

    candidate: Candidate
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd:
    """Why and with what a sweep ended.

    Attributes:
        reason: 'budget', 'timeout' or 'exhausted' (every candidate of the space has been evaluated).
        new: evaluations made by this run, second attempts among them; `reused` were there before.
        search_s: wall time of the search, `overhead_s` of it outside evaluations.
        proposals: what the sampler proposed, repeats and forbidden ones included.
        interrupted: what was in flight when the time was up.
    """

    reason: str
    new: int
    reused: int
    search_s: float
    overhead_s: float
    proposals: int
    repeats: int
    forbidden: int
    interrupted: Interrupted | None = None


def run_sweep(
    experiment: Experiment,
    bench: Bench,
    *,
    trials: int | None = None,
    time: RunTime | None = None,
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
    resumed: Callable[[Candidate], None] = lambda candidate: None,
    trying: Callable[[Candidate, str], None] = lambda candidate, why: None,
) -> SweepEnd:
    """Search until `trials` distinct candidates are evaluated in all, the search's time is up, or the space is empty.

    The caller holds the journal's lock, and has had damaged files set aside. Candidates whose evaluation was lost so
    are evaluated again whatever the budget, and a study that was lost is told what is known.

    However a run ends, running again goes on with the candidate in flight, and
    tries candidates again that failed by a timeout, a killed child or a full disk. Only a candidate whose own
    evaluation process died `MAX_CRASHES` times, while this one lived, is given up.

    Args:
        time: of the whole run, of which the search leaves what confirming its front needs; None for as long as it
            takes.
        executor: where evaluations run; in this process when None, and then a crash of one ends the sweep.
        resumed: told of a candidate that was in flight when an earlier run ended, or failed by no fault of its own,
            before it is evaluated again.
        trying: told of every candidate before it is evaluated, and why it comes now.

    Raises:
        ConfigError: what this sweep measured before, it measured with another toolchain; or `warm_start:` names a
            sweep that there is not.
        ToolchainError: the machine is at fault; everything told so far is kept.
    """
    budget = experiment.trials if trials is None else trials
    began = perf_counter()
    known = bench.journal.evaluations()
    _refuse_other_toolchain(experiment, bench, known)
    warm = fixed(experiment, bench)
    study = sound_study(experiment, bench, first_proposals(experiment, warm))
    unlucky = [known.pop(e.candidate.id) for e in list(known.values()) if e.deserves_another]
    reused = len(known)
    for evaluation in known.values():
        for listener in listeners:
            listener.evaluated(evaluation, reused=True)
    executor = executor or InProcess(experiment, bench)
    loop = _Loop(experiment, bench, study, known, listeners, executor, time, resumed, warm, trying)
    reason = "budget"
    interrupted: Interrupted | None = None
    everything = size(experiment.space)
    with writable(bench.journal.root):
        loop.tell_again()
        loop.try_again(unlucky)
        loop.evaluate_again(bench.journal.lost())
        loop.measure_anew()
        while len(known) < budget or loop.outstanding:
            if everything.exact and len(known) >= everything.candidates:
                reason = "exhausted"
                break
            if not loop.has_time():
                reason = "timeout"
                break
            try:
                if not loop.step():
                    reason = "exhausted"
                    break
            except TimeUp as up:
                assert loop.in_flight is not None, "something was ended"
                reason, interrupted = "timeout", Interrupted(candidate=loop.in_flight, stage=up.stage)
                break
        try:
            if interrupted is None:
                loop.measure_promising()
        except TimeUp as up:
            assert loop.in_flight is not None, "something was ended"
            reason, interrupted = "timeout", Interrupted(candidate=loop.in_flight, stage=up.stage)
        bench.journal.keep_study()
    search_s = perf_counter() - began
    return SweepEnd(
        reason=reason,
        new=len(known) - reused,
        reused=reused,
        search_s=search_s,
        overhead_s=search_s - loop.evaluate_s,
        proposals=loop.proposals,
        repeats=loop.repeats,
        forbidden=loop.forbidden,
        interrupted=interrupted,
    )


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
        time: RunTime | None,
        resumed: Callable[[Candidate], None],
        warm: WarmStart,
        trying: Callable[[Candidate, str], None],
    ) -> None:
        self.experiment, self.bench, self.study, self.known = experiment, bench, study, known
        self.warm = warm
        self.listeners, self.executor, self.time = listeners, executor, time
        self.in_flight: Candidate | None = None
        self.resumed, self.trying = resumed, trying
        self.proposals = self.repeats = self.forbidden = 0
        self.evaluate_s = 0.0
        self.attempts: dict[str, int] = {}  # made so far at candidates that are tried again
        self.doubted: dict[str, tuple[Fact, ...]] = {}  # what they had borrowed, of those that are measured anew
        self.left_open = trials_left_open(study, known)
        self.in_flight_before = {t.user_attrs.get("candidate") for t in self.left_open} - {None}

    @property
    def outstanding(self) -> bool:
        """Whether a second attempt is still to come; the budget counts candidates, so it does not stand in the way."""
        return any(candidate_id not in self.known for candidate_id in self.attempts)

    def step(self) -> bool:
        """Evaluate one candidate nobody has evaluated; False when there is none left."""
        while repeats_in_a_row(self.study) < MAX_REPEATS or self.left_open or queued(self.study):
            if self._try_one():
                return True
        assignment = unseen(self.experiment, self.known)
        if assignment is None:
            return False
        self.study.enqueue_trial(dict(assignment))
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
            tell(self.study, trial, self.experiment, self.known[candidate.id], self.known, repeat=repeat)
            return False
        self._evaluate(trial, candidate)
        return True

    def _ask(self) -> tuple[optuna.Trial, Candidate | None]:
        trial = next_trial(
            self.study, self.experiment, self.left_open, self.known, priors(self.experiment, self.warm, self.known)
        )
        self.proposals += 1
        space = self.experiment.space
        assignment = suggest(space, lambda name, choices: trial.suggest_categorical(name, list(choices)))
        try:
            candidate = build(space, assignment)
        except Forbidden as error:
            self.forbidden += 1
            tell_forbidden(self.study, trial, self.experiment, str(error))
            return trial, None
        trial.set_user_attr("candidate", candidate.id)
        return trial, candidate

    def _evaluate(self, trial: optuna.Trial, candidate: Candidate) -> None:
        doubted = self.doubted.get(candidate.id, ())
        if not doubted and (candidate.id in self.in_flight_before or candidate.id in self.attempts):
            self.resumed(candidate)
        self.trying(candidate, why_now(trial, self.experiment))
        # after an exception the trial stays open, and the next run goes on with it
        evaluation = self._carried_out(
            candidate,
            crashes=int(trial.user_attrs.get(CRASHES, 0)),
            crashed=lambda crashes: trial.set_user_attr(CRASHES, crashes),
        )
        evaluation = replace(
            evaluation,
            attempt=max(evaluation.attempt, self.attempts.get(candidate.id, 0) + 1),
            facts=instead_of(doubted, evaluation.facts),
        )
        self.bench.journal.write(evaluation)
        self.known[candidate.id] = evaluation
        tell(self.study, trial, self.experiment, evaluation, self.known, repeat=False)
        for listener in self.listeners:
            listener.evaluated(evaluation, reused=False)
        self.measure_anew()

    def measure_anew(self) -> None:
        """Queue candidates that hold a loan of a kind that an audit has found wrong since."""
        for candidate in owed(tuple(self.known.values())):
            if queue(self.study, self.experiment.space, candidate.id, candidate):
                before = self.known.pop(candidate.id)
                self.attempts[candidate.id] = before.attempt
                self.doubted[candidate.id] = before.facts
                _log.warning("The times lent to %s may be wrong: it is measured anew, itself.", candidate.short_id)

    def _carried_out(
        self,
        candidate: Candidate,
        *,
        whole: bool = False,
        crashes: int = 0,
        crashed: Callable[[int], None] = lambda crashes: None,
    ) -> Evaluation:
        task = Task(
            candidate=candidate,
            incumbents=tuple(front_of(self.experiment, self.known)),
            loans=loans_for(candidate, self.known, self.experiment.seed),
            whole=whole,
        )
        until = None if self.time is None else self.time.search_end(self.experiment, self.known)
        began, self.in_flight = perf_counter(), candidate
        try:
            return survived(
                self.experiment, self.bench, self.executor, task, crashes=crashes, crashed=crashed, until=until
            )
        finally:
            self.evaluate_s += perf_counter() - began

    def has_time(self) -> bool:
        """Whether one more candidate may come to something, and the best of those that wait be measured after it."""
        if self.time is None:
            return True
        if not self.time.may_begin(self.experiment, self.known):
            return False
        waiting = promising(self.experiment, self.known)
        needed_s = self._whole_s(waiting[0]) if waiting else 0.0
        return perf_counter() + needed_s <= self.time.search_end(self.experiment, self.known)

    def _whole_s(self, evaluation: Evaluation) -> float:
        """What compiling all of its set takes, by the compiles of this sweep, and measuring it, by the baseline's."""
        stages = [s for e in self.known.values() for s in e.stages if s.compiled]
        each_s = sum(s.seconds for s in stages) / max(1, sum(s.compiled for s in stages))
        shapes = evaluation.forecast.shapes if evaluation.forecast is not None else 0
        baseline = self.known.get(self.experiment.baseline.id)
        measured = () if baseline is None else (s.seconds for s in baseline.stages if not s.compiled)
        return each_s * shapes + sum(measured)

    def measure_promising(self) -> None:
        """Measure whole what waits and may be on the front, the best first, until nothing that waits may be.

        What is told to the sampler stays the prediction: a trial is told once.
        """
        while waiting := promising(self.experiment, self.known):
            if self.time is not None and not self.time.may_begin(self.experiment, self.known):
                return
            before = waiting[0]
            self.trying(before.candidate, "it may be on the front by what was predicted: it is measured whole")
            evaluation = self._carried_out(before.candidate, whole=True)
            stages = (*before.stages, *evaluation.stages)
            evaluation = replace(evaluation, attempt=before.attempt, stages=stages)
            self.bench.journal.write(evaluation)
            self.known[before.candidate.id] = evaluation
            for listener in self.listeners:
                listener.evaluated(evaluation, reused=False)

    def try_again(self, unlucky: Sequence[Evaluation]) -> None:
        """Bring candidates forward whose last attempt deserves another: they come next, after what was in flight.

        Optuna keeps the failed trial beside the new one: a trial that was told cannot be taken back.
        """
        for evaluation in unlucky:
            candidate = evaluation.candidate
            if queue(self.study, self.experiment.space, candidate.id, candidate):
                self.attempts[candidate.id] = evaluation.attempt
                trial = waiting(self.study, candidate.id)
                self.left_open += [trial] if trial is not None else []

    def evaluate_again(self, lost: Mapping[str, Candidate | None]) -> None:
        """Queue candidates whose evaluation was lost; one that nobody can name any more is let go."""
        for candidate_id, candidate in lost.items():
            if queue(self.study, self.experiment.space, candidate_id, candidate):
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
                queue(self.study, self.experiment.space, candidate_id, evaluation.candidate)
