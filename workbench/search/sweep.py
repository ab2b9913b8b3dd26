"""The search loop: ask the sampler for candidates, have them evaluated, tell the results, until the budget is spent.

The loop knows nothing of stages. Everything it learns lies in the journal before it is told to Optuna, so that a
killed sweep goes on where it stopped and loses at most what is in flight. Where several executors work at once, this
thread alone asks, tells and writes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Protocol

import optuna

from workbench.evaluation.bench import Bench
from workbench.evaluation.reuse import instead_of, reusable_for
from workbench.inputs.experiment import Experiment
from workbench.search.asking import (
    Again,
    comes_again,
    count_crashes,
    crashes_of,
    next_trial,
    queue,
    queued,
    repeats_in_a_row,
    tell,
    tell_forbidden,
    tell_in_flight,
    told_candidates,
    trials_left_open,
    unfinished,
    unseen,
    waiting,
    why_now,
)
from workbench.search.effort import FULL, Effort
from workbench.search.executors import Executor, InProcess, Task, TimeUp, WorkerPool, Workers, survived
from workbench.search.first_look import to_look_at
from workbench.search.front import front_of, may_be_on_front
from workbench.search.study import sound_study
from workbench.search.time_limit import RunTime
from workbench.space.space import Forbidden, build, size, suggest
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.evidence import SHORT
from workbench.values.results import Evaluation

_log = logging.getLogger(__name__)

MAX_REPEATS = 15
"""So many proposals in a row that are known or forbidden, and the loop draws an unseen candidate itself."""


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
        interrupted: what was in flight when the time was up.
    """

    reason: str
    new: int
    reused: int
    search_s: float
    overhead_s: float
    interrupted: Interrupted | None = None


def run_sweep(
    experiment: Experiment,
    bench: Bench,
    *,
    trials: int | None = None,
    time: RunTime | None = None,
    listeners: Sequence[Listener] = (),
    workers: Workers | None = None,
    resumed: Callable[[Candidate], None] = lambda candidate: None,
    trying: Callable[[Candidate, str], None] = lambda candidate, why: None,
    looked: Callable[[Evaluation], None] = lambda look: None,
    effort: Effort = FULL,
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
        workers: who evaluates and compiles ahead; this process where it is None, and then a crash of a candidate ends
            the sweep.
        resumed: told of a candidate that was in flight when an earlier run ended, or failed by no fault of its own,
            before it is evaluated again.
        trying: told of every candidate before it is evaluated, and why it comes now.
        looked: told of each first look at INT8, before anything is measured in full; it is no evaluation, and none is
            written.
        effort: of every evaluation of this search.

    Raises:
        ConfigError: what this sweep measured before, it measured with another toolchain.
        ToolchainError: the machine is at fault; everything told so far is kept.
    """
    budget = experiment.trials if trials is None else trials
    began = perf_counter()
    known = bench.journal.evaluations()
    _refuse_other_toolchain(experiment, bench, known)
    study = sound_study(experiment, bench)
    unlucky = [known.pop(e.candidate.id) for e in list(known.values()) if e.deserves_another]
    reused = len(known)
    for evaluation in known.values():
        for listener in listeners:
            listener.evaluated(evaluation, reused=True)
    with (
        WorkerPool[_Flight]((InProcess(experiment, bench),))
        if workers is None
        else WorkerPool[_Flight](workers.cards, workers.compilers, workers.hear) as pool
    ):
        asked = (resumed, trying, looked, effort)
        loop = _Loop(experiment, bench, study, known, pool, listeners, time, *asked)
        with _writable(bench.journal.root):
            loop.bring_back(comes_again(study, known, failed=unlucky, lost=bench.journal.lost()))
            reason = loop.run(budget)
            bench.journal.keep_study()
    search_s = perf_counter() - began
    return SweepEnd(
        reason="timeout" if loop.interrupted else reason,
        new=len(known) - reused,
        reused=reused,
        search_s=search_s,
        overhead_s=search_s - loop.busy_s,
        interrupted=loop.interrupted[0] if loop.interrupted else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """A candidate that is being evaluated.

    Attributes:
        trial: None for one that was predicted before and is measured whole, and for a first look.
    """

    candidate: Candidate
    trial: optuna.Trial | None = None
    look: bool = False

    @property
    def whole(self) -> bool:
        return self.trial is None and not self.look


@dataclass
class _Loop:
    """The state of one run of the loop: the study, what is known, and what is in flight."""

    experiment: Experiment
    bench: Bench
    study: optuna.Study
    known: dict[str, Evaluation]
    pool: WorkerPool[_Flight]
    listeners: Sequence[Listener]
    time: RunTime | None
    resumed: Callable[[Candidate], None]
    trying: Callable[[Candidate, str], None]
    looked: Callable[[Evaluation], None]
    effort: Effort

    def __post_init__(self) -> None:
        self.interrupted: list[Interrupted] = []
        self.busy_s, self._busy_since = 0.0, 0.0
        self.again: dict[str, Again] = {}  # by id, what this run evaluates once more
        self.looks: list[Candidate] = []
        self.ended = ""  # why nothing more is asked for
        self.left_open = trials_left_open(self.study)
        self.in_flight_before = {t.user_attrs.get("candidate") for t in self.left_open} - {None}

    def run(self, budget: int) -> str:
        """Ask, run and tell until nothing comes next; why: the budget is spent, the time is up or nothing is left."""
        if not self.known and budget > 1:
            self.looks = [c for c in to_look_at(self.experiment) if not crashes_of(self.study, self._open_trial(c))]
        while True:
            step = self.comes_next(budget)
            if isinstance(step, _Flight):
                self._begin(step)
            elif self.pool.working:
                self.finish()
            else:
                return step

    def comes_next(self, budget: int) -> _Flight | str:
        """What is evaluated now; else why nothing is, which may change with what is in flight.

        First looks at INT8, where nothing is known yet, one at a time. Then what the study asks for, those that come
        again before all others. In the end what was deferred and may be on the front, the best prediction first.
        """
        if self.looks and not self.interrupted and (self.time is None or self.time.left_s > 0):
            return "" if self.pool.working else _Flight(candidate=self.looks.pop(0), look=True)
        self.looks = []
        if not self.ended:
            step = self._asked(budget)
            if isinstance(step, _Flight) or not step or self.pool.working:
                return step
            self.ended = step
        return self._deferred() or self.ended

    def _asked(self, budget: int) -> _Flight | str:
        everything = size(self.experiment.space)
        begun = len(self.known) + len(self.pool.working)
        flying = self._flying()
        # the budget counts candidates, so what comes again does not stand in the way
        over = not any(candidate_id not in self.known and candidate_id not in flying for candidate_id in self.again)
        if over and begun >= budget:
            return "budget"
        if over and everything.exact and begun >= everything.candidates:
            return "exhausted"
        if self.interrupted or not self.has_time():
            return "timeout"
        if not self.pool.free or self._only_baseline():
            return ""
        return self._next_trial() or "exhausted"

    def _deferred(self) -> _Flight | None:
        """What is told to the sampler of it stays the prediction: a trial is told once."""
        flying = self._flying()
        left = [e for e in may_be_on_front(self.experiment, self.known) if e.candidate.id not in flying]
        may = self.time is None or self.time.may_begin(self.experiment, self.known)
        if not left or not may or self.interrupted or not self.pool.free:
            return None
        self.trying(left[0].candidate, "it may be on the front by what was predicted: it is measured whole")
        return _Flight(candidate=left[0].candidate)

    def _only_baseline(self) -> bool:
        """Whether the float baseline is being measured, which all are compared with and may reuse."""
        baseline = self.experiment.baseline.id
        return baseline not in self.known and baseline in self._flying()

    def _open_trial(self, candidate: Candidate) -> int | None:
        return unfinished(self.study, self.experiment.space, candidate.id)

    def _flying(self) -> list[str]:
        return [flight.candidate.id for flight in self.pool.working]

    def _next_trial(self) -> _Flight | None:
        """A candidate that nobody has evaluated; None when there is none left."""
        while repeats_in_a_row(self.study) < MAX_REPEATS or self.left_open or queued(self.study):
            if (flight := self._try_one()) is not None:
                return flight
        assignment = unseen(self.experiment, {*self.known, *self._flying()})
        if assignment is None:
            return None
        self.study.enqueue_trial(dict(assignment))
        return self._try_one()

    def _try_one(self) -> _Flight | None:
        """Ask once; None where that leads to no evaluation."""
        trial, candidate = self._ask()
        if candidate is None:
            return None
        if candidate.id in self.known:
            # not a repeat: an ended run that had measured it, and not yet told it
            repeat = candidate.id in told_candidates(self.study)
            tell(self.study, trial, self.experiment, self.known[candidate.id], repeat=repeat)
            return None
        if candidate.id in self._flying():
            tell_in_flight(self.study, trial)
            return None
        again = self.again.get(candidate.id)
        if again.by_itself if again is not None else candidate.id in self.in_flight_before:
            self.resumed(candidate)
        self.trying(candidate, why_now(trial))
        return _Flight(candidate=candidate, trial=trial)

    def _ask(self) -> tuple[optuna.Trial, Candidate | None]:
        trial = next_trial(self.study, self.experiment, self.left_open, self.known, self._flying())
        space = self.experiment.space
        assignment = suggest(space, lambda name, choices: trial.suggest_categorical(name, list(choices)))
        try:
            candidate = build(space, assignment)
        except Forbidden as error:
            tell_forbidden(self.study, trial, str(error))
            return trial, None
        trial.set_user_attr("candidate", candidate.id)
        return trial, candidate

    def _begin(self, flight: _Flight) -> None:
        candidate, trial = flight.candidate, flight.trial
        until = None if self.time is None else self.time.search_end(self.experiment, self.known)
        if not self.pool.working:
            self._busy_since = perf_counter()
        # one count for a candidate's first look and its evaluation, in the trial that both are of
        counted = trial._trial_id if trial else self._open_trial(candidate)
        crashes, crashed = crashes_of(self.study, counted), partial(count_crashes, self.study, counted)

        def ready() -> Callable[[Executor], Evaluation]:
            # by what is known when a card is free, which may be more than when it was asked for
            task = Task(
                candidate=candidate,
                incumbents=tuple(front_of(self.experiment, self.known)),
                reusable=reusable_for(candidate, self.known, self.experiment.seed),
                effort=self.effort,
                whole=flight.whole,
                look=flight.look,
            )

            def work(executor: Executor) -> Evaluation:
                at = (self.experiment, self.bench, executor, task)
                return survived(*at, crashes=crashes, crashed=crashed, until=until)

            return work

        # a set that is measured whole is compiled where it is measured: the card has nothing else to do by then
        self.pool.begin(flight, ready, candidate if trial is not None else None, until)

    def finish(self) -> None:
        """Wait for the evaluation that ends first, and keep and tell what became of it; or until more may begin.

        After an exception the trial stays open, and the next run goes on with it.
        """
        done = self.pool.first()
        if not self.pool.working:
            self.busy_s += perf_counter() - self._busy_since
        if done is None:
            return
        flight = done.what
        try:
            evaluation = done.future.result()
        except TimeUp as up:
            self.interrupted.append(Interrupted(candidate=flight.candidate, stage=up.stage))
            return
        evaluation = replace(evaluation, stages=(*done.ahead, *evaluation.stages))
        if flight.look:
            self.looked(evaluation)
        else:
            self._keep(flight, evaluation)

    def _keep(self, flight: _Flight, evaluation: Evaluation) -> None:
        candidate = flight.candidate
        if flight.trial is None:
            before = self.known[candidate.id]
            evaluation = replace(evaluation, attempt=before.attempt, stages=(*before.stages, *evaluation.stages))
        elif (again := self.again.get(candidate.id)) is not None:
            evaluation = replace(
                evaluation,
                attempt=max(evaluation.attempt, again.attempts + 1),
                reuse=instead_of(again.doubted, evaluation.reuse),
            )
        self.bench.journal.write(evaluation)
        self.known[candidate.id] = evaluation
        if flight.trial is not None:
            tell(self.study, flight.trial, self.experiment, evaluation, repeat=False)
        for listener in self.listeners:
            listener.evaluated(evaluation, reused=False)
        if flight.trial is not None:
            self.bring_back(comes_again(self.study, self.known))

    def bring_back(self, coming: Iterable[Again]) -> None:
        """Have candidates asked for once more. One that nobody can name any more is let go.

        Optuna keeps an earlier trial beside the new one: a trial that was told cannot be taken back.
        """
        for again in coming:
            if not queue(self.study, self.experiment.space, again.candidate_id, again.candidate):
                if again.why == "lost":
                    _log.warning(
                        "The evaluation of %s is lost, and so are its settings: it cannot be repeated.",
                        again.candidate_id[:SHORT],
                    )
                    self.bench.journal.forget(again.candidate_id)
                continue
            if again.why == "untold":  # `_try_one` tells it
                continue
            self.known.pop(again.candidate_id, None)
            self.again[again.candidate_id] = again
            if again.why == "failed":  # next, after what was in flight
                self.left_open += waiting(self.study, again.candidate_id)
            elif again.why == "reuse":
                _log.warning(
                    "The times that %s reused may be wrong: it is measured anew, itself.", again.candidate_id[:SHORT]
                )

    def has_time(self) -> bool:
        """Whether one more candidate may come to something, and the best of those that wait be measured after it."""
        if self.time is None:
            return True
        if not self.time.may_begin(self.experiment, self.known):
            return False
        waiting = may_be_on_front(self.experiment, self.known)
        needed_s = self._whole_s(waiting[0]) if waiting else 0.0
        return perf_counter() + needed_s <= self.time.search_end(self.experiment, self.known)

    def _whole_s(self, evaluation: Evaluation) -> float:
        """What compiling all of its set takes, by the compiles of this sweep, and measuring it, by the baseline's."""
        stages = [s for e in self.known.values() for s in e.stages if s.compiled]
        each_s = sum(s.seconds for s in stages) / max(1, sum(s.compiled for s in stages))
        shapes = evaluation.prediction.shapes if evaluation.prediction is not None else 0
        baseline = self.known.get(self.experiment.baseline.id)
        measured = () if baseline is None else (s.seconds for s in baseline.stages if not s.compiled)
        return each_s * shapes + sum(measured)


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
