"""The search loop: ask who comes next, have it evaluated, write what became of it, until the budget is spent; and its
front measured again on held-out data: in full where the run's time allows, else with less effort, or in part.

The loop knows nothing of stages. Who comes next is a query over journal and queue (`asking`), so that a killed sweep
goes on where it stopped and loses at most what is in flight. Where several executors work at once, this thread alone
asks and writes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Protocol

from workbench.evaluation.bench import Bench
from workbench.evaluation.reuse import doubtful, instead_of, reusable_for
from workbench.inputs.experiment import Experiment
from workbench.search.asking import Queue, beginning
from workbench.search.executors.base import InProcess, TimeUp, Worker
from workbench.search.executors.worker_pool import WorkerPool, Workers, survived
from workbench.search.first_look import to_look_at
from workbench.search.forecast import RunTime, fitting, known_cost, predicted_by_search
from workbench.search.front import may_be_on_front
from workbench.search.stages.request import FULL, Effort, Task
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.evidence import SHORT
from workbench.values.results import Evaluation

_log = logging.getLogger(__name__)


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
    are evaluated again whatever the budget.

    However a run ends, running again goes on with the candidate in flight, and tries candidates again that failed by a
    timeout, a killed child or a full disk. Only a candidate whose own evaluation process died `MAX_CRASHES` times,
    while this one lived, is given up.

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
    for evaluation in known.values():  # times of another machine or runtime must not stand beside new ones in one front
        here = bench.toolchain(evaluation.candidate)
        if evaluation.toolchain.fingerprint != here.fingerprint:
            raise ConfigError(
                f"this sweep was measured on {evaluation.toolchain.device} with "
                f"{dict(evaluation.toolchain.components)}; here is {here.device} with {dict(here.components)}.",
                file=experiment.path,
                hint="Start a new one with --fresh (the old results are kept).",
            )
    queue = Queue(experiment, beginning(experiment), bench.journal)
    for evaluation in known.values():
        queue.add(evaluation.candidate)
    again = {i for i, evaluation in known.items() if evaluation.deserves_another} | _lost(bench, queue)
    known = {i: evaluation for i, evaluation in known.items() if i not in again}
    reused = len(known)
    for evaluation in known.values():
        for listener in listeners:
            listener.evaluated(evaluation, reused=True)
    with WorkerPool[Task](workers or Workers(cards=(InProcess(experiment, bench),))) as pool:
        asked = (resumed, trying, looked, effort)
        loop = _Loop(experiment, bench, queue, known, again, pool, listeners, time or RunTime(math.inf), *asked)
        with _writable(bench.journal.root):
            reason = loop.run(budget)
    search_s = perf_counter() - began
    return SweepEnd(
        reason="timeout" if loop.interrupted else reason,
        new=len(known) - reused,
        reused=reused,
        search_s=search_s,
        overhead_s=search_s - loop.busy_s,
        interrupted=loop.interrupted[0] if loop.interrupted else None,
    )


def _lost(bench: Bench, queue: Queue) -> set[str]:
    """Ids of those that were evaluated and have no evaluation any more. One whose choices nothing says is let go."""
    found = bench.journal.lost()
    for candidate_id, candidate in found.items():
        if candidate_id not in queue.trials and (candidate is None or not queue.add(candidate)):
            _log.warning(
                "The evaluation of %s is lost, and so are its settings: it cannot be repeated.", candidate_id[:SHORT]
            )
            bench.journal.forget(candidate_id)
    return {candidate_id for candidate_id in found if candidate_id in queue.trials}


@dataclass
class _Loop:
    """The state of one run of the loop: what is known, what of it is measured once more, and what is in flight."""

    experiment: Experiment
    bench: Bench
    queue: Queue
    known: dict[str, Evaluation]
    again: set[str]
    pool: WorkerPool[Task]
    listeners: Sequence[Listener]
    time: RunTime
    resumed: Callable[[Candidate], None]
    trying: Callable[[Candidate, str], None]
    looked: Callable[[Evaluation], None]
    effort: Effort

    def __post_init__(self) -> None:
        self.interrupted: list[Interrupted] = []
        self.busy_s, self._busy_since = 0.0, 0.0
        self.looks: list[Candidate] = []
        self.ended = ""  # why nothing more is asked for
        self.left_open = set(self.queue.open(self.known))
        self.take_back()

    def run(self, budget: int) -> str:
        """Ask, run and write until nothing comes next; why: the budget is spent, the time is up or nothing is left."""
        if not self.known and budget > 1:
            self.looks = [c for c in to_look_at(self.experiment) if c.id not in self.queue.crashes]
        while True:
            step = self.comes_next(budget)
            if isinstance(step, Task):
                self._begin(step)
            elif self.pool.working:
                self.finish()
            else:
                return step

    def comes_next(self, budget: int) -> Task | str:
        """What is evaluated now; else why nothing is, which may change with what is in flight.

        First looks at INT8, where nothing is known yet, one at a time. Then what is asked for, those that come again
        before all others. In the end what was deferred and may be on the front, the best prediction first.
        """
        if self.looks and not self.interrupted and self.time.left_s > 0:
            return "" if self.pool.working else Task(candidate=self.looks.pop(0), effort=self.effort, look=True)
        self.looks = []
        if not self.ended:
            step = self._asked(budget)
            if isinstance(step, Task) or not step or self.pool.working:
                return step
            self.ended = step
        return self._deferred() or self.ended

    def _asked(self, budget: int) -> Task | str:
        flying = [task.candidate.id for task in self.pool.working]
        # the budget counts candidates, so what comes again does not stand in the way
        if len(self.known) + len(flying) >= budget and not self.again.difference(self.known, flying):
            return "budget"
        if self.interrupted or not self.has_time():
            return "timeout"
        baseline = self.experiment.baseline.id  # which all are compared with and may reuse
        if not self.pool.free or (baseline in flying and baseline not in self.known):
            return ""
        trial = self.queue.next(self.known, flying)
        if trial is None:
            return "exhausted"
        candidate, why = trial
        if candidate.id in self.left_open:
            self.resumed(candidate)
        self.trying(candidate, why)
        return Task(candidate=candidate, effort=self.effort)

    def _deferred(self) -> Task | None:
        flying = [task.candidate.id for task in self.pool.working]
        left = [e for e in may_be_on_front(self.experiment, self.known) if e.candidate.id not in flying]
        may = self.time.may_begin(self.experiment, self.known)
        if not left or not may or self.interrupted or not self.pool.free:
            return None
        self.trying(left[0].candidate, "it may be on the front by what was predicted: it is measured whole")
        return Task(candidate=left[0].candidate, effort=self.effort, whole=True)

    def _begin(self, task: Task) -> None:
        candidate = task.candidate
        until = self.time.search_end(self.experiment, self.known)
        if not self.pool.working:
            self._busy_since = perf_counter()
        # one count for a candidate's first look and its evaluation
        crashes, crashed = self.queue.crashes.get(candidate.id, 0), partial(self.queue.count_crashes, candidate.id)

        def work(worker: Worker) -> Evaluation:
            # by what is known when a card is free, which may be more than when it was asked for
            reusable = reusable_for(candidate, dict(self.known), self.experiment.seed)
            at = (self.experiment, self.bench, worker, replace(task, reusable=reusable))
            return survived(*at, crashes=crashes, crashed=crashed, until=until)

        # a set that is measured whole is compiled where it is measured: the card has nothing else to do by then
        self.pool.begin(task, work, None if task.whole or task.look else candidate, until)

    def finish(self) -> None:
        """Wait for the evaluation that ends first, and keep what became of it.

        After an exception the candidate stays open in the queue, and the next run goes on with it.
        """
        task, future = self.pool.first()
        if not self.pool.working:
            self.busy_s += perf_counter() - self._busy_since
        try:
            evaluation = future.result()
        except TimeUp as up:
            self.interrupted.append(Interrupted(candidate=task.candidate, stage=up.stage))
            return
        if task.look:
            latency = evaluation.measurement.latency
            self.queue.looked_at(task.candidate.id, 0.0 if latency is None else latency.speedup.value)
            self.looked(evaluation)
        else:
            self._keep(task, evaluation)

    def _keep(self, task: Task, evaluation: Evaluation) -> None:
        candidate_id = task.candidate.id
        before = self.bench.journal.evaluation(candidate_id)
        if before is not None and task.whole:
            evaluation = replace(evaluation, attempt=before.attempt, stages=(*before.stages, *evaluation.stages))
        elif before is not None:
            reuse = evaluation.reuse if before.failure is not None else instead_of(before.reuse, evaluation.reuse)
            evaluation = replace(evaluation, attempt=max(evaluation.attempt, before.attempt + 1), reuse=reuse)
        self.bench.journal.write(evaluation)
        self.queue.crashes.pop(candidate_id, None)
        self.known[candidate_id] = evaluation
        for listener in self.listeners:
            listener.evaluated(evaluation, reused=False)
        self.take_back()

    def take_back(self) -> None:
        """What reused measurements that an audit doubts does not stand any more: it is measured anew."""
        for candidate in doubtful(tuple(self.known.values())):
            _log.warning("The times that %s reused may be wrong: it is measured anew, itself.", candidate.short_id)
            self.known.pop(candidate.id)
            self.again.add(candidate.id)

    def has_time(self) -> bool:
        """Whether one more candidate may come to something, and the best of those that wait be measured after it."""
        if not self.time.may_begin(self.experiment, self.known):
            return False
        needed_s, baseline = 0.0, self.known.get(self.experiment.baseline.id)
        for waiting in may_be_on_front(self.experiment, self.known)[:1]:
            # compiling all of its set, by the compiles of this sweep, and measuring it, by the baseline's
            stages = [s for e in self.known.values() for s in e.stages if s.compiled]
            each_s = sum(s.seconds for s in stages) / max(1, sum(s.compiled for s in stages))
            needed_s = each_s * (waiting.prediction.shapes if waiting.prediction is not None else 0)
            needed_s += 0.0 if baseline is None else sum(s.seconds for s in baseline.stages if not s.compiled)
        return perf_counter() + needed_s <= self.time.search_end(self.experiment, self.known)


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


# --- the front again, on held-out data -------------------------------------------------------------------------------


def confirm(
    experiment: Experiment,
    bench: Bench,
    front: Sequence[Evaluation],
    listeners: Sequence[Listener] = (),
    workers: Workers | None = None,
    time: RunTime | None = None,
) -> dict[str, Evaluation]:
    """Measure the baseline and front members again on the holdout split, with fresh timing; those that were confirmed.

    Members confirmed before (by this sweep, with the same journal) are not measured again, unless that failed by no
    fault of theirs, or was cut and there is time now to do it in full.

    Args:
        front: the most important first; with too little time, the last go without.
        workers: who evaluates; this process where it is None. What compiles ahead has nothing to do.
        time: of the run, which the loads that follow share; None for as long as it takes.
    """
    workers, time = workers or Workers(cards=(InProcess(experiment, bench),)), time or RunTime(math.inf)
    candidates = {c.id: c for c in (experiment.baseline, *(e.candidate for e in front))}
    before = {i: bench.journal.evaluation(i, "holdout") for i in candidates}
    confirmed = {i: e for i, e in before.items() if e is not None and not e.deserves_another}
    missing = [c for i, c in candidates.items() if i not in confirmed]
    cut = [c for i, c in candidates.items() if i in confirmed and confirmed[i].cut]
    known = bench.journal.evaluations()
    costs = {c.id: known_cost(experiment, known.get(c.id), known) for c in (*missing, *cut)}
    with WorkerPool[Candidate](replace(workers, compilers=())) as pool:
        for todo, least in ((missing, None), (cut, FULL)):
            while todo or pool.working:
                if not todo or not pool.free:
                    candidate, future = pool.first()
                    try:
                        found = future.result()
                    except TimeUp:  # nor is there time for others
                        todo = []
                        continue
                    earlier = before[candidate.id]
                    attempt = earlier.attempt + 1 if earlier is not None and earlier.deserves_another else 1
                    confirmed[candidate.id] = found = replace(found, attempt=max(attempt, found.attempt))
                    bench.journal.write(found)
                    for listener in listeners:
                        listener.evaluated(found, reused=False)
                    continue
                effort, count = fitting([costs[c.id] for c in todo], time.left_s * len(workers.cards))
                only_baseline = count == 1 and len(todo) > 1 and todo[0].id == experiment.baseline.id
                if count == 0 or only_baseline or least not in (None, effort):
                    todo = []
                    continue
                until = time.end - costs[todo[0].id].loaded_s(effort)
                candidate = todo.pop(0)
                if predicted_by_search(experiment, known.get(candidate.id)):
                    effort = replace(effort, curve=False, loaded=True)
                task = Task(candidate=candidate, split="holdout", gates=False, effort=effort)
                pool.begin(candidate, partial(survived, experiment, bench, task=task, until=until))
    return {i: confirmed[i] for i in candidates if i in confirmed}
