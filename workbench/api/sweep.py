"""A sweep from the question to the recommendation, the same for every door; and what is said of it before it begins."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

from workbench.api.opening import journal_of, opened, read_experiment, summary_of, tracked
from workbench.api.result import SweepResult
from workbench.evaluation.bench import open_bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.journal import Journal
from workbench.evaluation.record import calibration_line, observed_statistics
from workbench.evaluation.run_notes import LastRun, Neighbour, read_last_run, write_last_run, write_neighbours
from workbench.evaluation.store import open_store
from workbench.evaluation.sweep_folders import exclusive, open_journal
from workbench.inputs.experiment import Experiment
from workbench.report import Summary
from workbench.report.factors import missing_between
from workbench.report.words import count_of
from workbench.search.executors.base import TimeUp, Worker
from workbench.search.executors.ray.cards import cluster_workers
from workbench.search.executors.ray.connection import cluster_settings
from workbench.search.executors.worker_pool import local_workers
from workbench.search.first_look import FIRST
from workbench.search.forecast import RunTime
from workbench.search.plan import Plan, check_memory, make_plan
from workbench.search.stages.request import Effort
from workbench.search.sweep import SweepEnd, confirm, run_sweep
from workbench.shipping.service_confirmation import confirm_services, left_to_load
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, ConfigError
from workbench.values.results import Damage, Evaluation
from workbench.values.system.steps import minutes

MOST_NEIGHBOURS = 3
NEIGHBOURS_SHARE = 0.25
"""Candidates that are timed to take a speed-up apart, and the share of the time left that they may take."""

CONFIRMATION_ROUNDS = 3
"""A member that held-out data refuses lets those onto the front that it was better than; they are confirmed in turn."""

_log = logging.getLogger(__name__)

OnEvaluation = Callable[[Evaluation, bool], None]
"""(an evaluation that is in the journal, whether an earlier run of this sweep made it)."""


def sweep(
    experiment: Experiment | Path | str,
    *,
    workspace: Path | str | None = None,
    trials: int | None = None,
    timeout_s: float | None = None,
    fresh: bool = False,
    store: str | None = None,
    cluster: str | None = None,
    command: str = "",
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_trying: Callable[[Candidate, str], None] = lambda candidate, why: None,
    on_look: Callable[[Evaluation], None] = lambda look: None,
    on_stage: Callable[[Candidate, str], None] = lambda candidate, stage: None,
    on_resume: Callable[[Candidate, str | None], None] = lambda candidate, stage: None,
    on_evaluation: OnEvaluation = lambda evaluation, reused: None,
    on_message: Callable[[str], None] = _log.info,
    on_damage: Callable[[Damage], None] = lambda damage: _log.warning("Damaged: %s", damage.words("this sweep")),
) -> SweepResult:
    """Search the space, measure candidates, confirm the front on held-out data, log everything to MLflow.

    Callbacks run in the calling thread, in the order of what happens. However this ends (a callback's error, Ctrl-C, a
    kill), what was measured is in the journal, and the same call goes on from there.

    Args:
        workspace: folder of `.workbench/` and `mlruns/`; beside `experiments/` when None.
        trials: candidates in all, those of earlier runs included; None for the experiment's budget.
        timeout_s: the whole run takes so many seconds at most, confirmation and loads included: the search ends early
            enough, what is in flight at the end is ended, and the confirmation is cut to fit. None for the
            experiment's.
        fresh: start over instead of going on with the last sweep, which is kept.
        store: folder or URL of a store that several machines share; None for what WORKBENCH_STORE names, if anything.
        cluster: whose cards are used: HOST:PORT of its head, 'auto' or the name of a cluster's file; None
            for this machine's.
        command: the command line that asks for it, kept with how the run ended.
        on_plan: told the forecast before any candidate is evaluated.
        on_trying: told (candidate, why) of each candidate of the search before it is evaluated.
        on_look: told of each first look at INT8 beside float, before anything is measured in full: an evaluation that
            stops after some samples and calls, is provisional and kept nowhere.
        on_stage: told (candidate, stage) when a stage begins.
        on_resume: told (candidate, stage) of one that an earlier run was ended at, before it is evaluated again; the
            stage it was in, None where that is not known.
        on_evaluation: told (evaluation, reused) after each one is in the journal; those on the 'holdout' split are the
            confirmations at the end.
        on_message: told in a sentence what else happens, such as the load a member of the front is served under.
        on_damage: told of each damaged file of the sweep, which is set aside.

    Raises:
        ConfigError: a file or an argument is wrong, or the last sweep was of another question.
        ToolchainError: this machine is at fault, or another process sweeps this experiment.
    """
    question = read_experiment(experiment, workspace)
    if trials is not None and trials < 1:
        raise ConfigError(f"{trials} is less than 1.", key="trials")
    if timeout_s is not None and not 0 <= timeout_s < math.inf:
        raise ConfigError(f"{timeout_s} is no number of seconds.", key="timeout_s")
    settings = None if cluster is None else cluster_settings(cluster)
    shared = None if settings is None else settings.store or None
    time = RunTime(question.timeout_s if timeout_s is None else timeout_s)
    check_memory(question, cards=int(settings is None))  # a cluster's cards are counted once it answers
    journal = open_journal(question.workspace, question.name, question.identity, fresh=fresh)
    with exclusive(journal), open_store(question.workspace, store or shared) as kept:
        for damage in journal.set_aside():
            on_damage(damage)
        heard = _Heard(on_stage, on_evaluation)
        bench = open_bench(question, journal, kept, heard.began)
        with (
            _noted(journal.root, time, heard, command) as ended,
            local_workers(question, bench)
            if settings is None
            else cluster_workers(settings, question, bench) as workers,
            tracked(question, journal) as tracker,
        ):
            plan = make_plan(
                question,
                bench,
                trials=trials,
                limit_s=time.limit_s,
                probe=lambda: _probed(workers.cards[0], time),
                gone=lambda: time.gone_s,
                cards=len(workers.cards),
                here=workers.here,
            )
            on_plan(plan)
            before = read_last_run(journal.root)

            def resumed(candidate: Candidate) -> None:
                same = before is not None and before.interrupted == candidate.id
                on_resume(candidate, before.stage if before is not None and same else None)

            end = run_sweep(
                question,
                bench,
                trials=trials,
                time=time,
                listeners=(heard, tracker),
                workers=workers,
                resumed=resumed,
                trying=on_trying,
                looked=on_look,
                effort=plan.effort,
            )
            heard.searching = False
            executor = workers.cards[0]
            found = summary_of(question, journal)
            _time_neighbours(journal, executor, time, found)
            front, asked = _by_importance(found), set[str]()
            for _ in range(CONFIRMATION_ROUNDS):
                asked.update(e.candidate.id for e in front)
                confirm(question, bench, front, (heard,), workers, time)
                with contextlib.suppress(TimeUp):
                    confirm_services(
                        question,
                        bench,
                        journal,
                        front,
                        report=on_message,
                        server=executor.confirm_service,
                        end=time.end,
                    )
                found = summary_of(question, journal)
                front = _by_importance(found)
                if found.recommended is None or asked.issuperset(e.candidate.id for e in front):
                    break
            _time_neighbours(journal, executor, time, found)  # where another is recommended
            ended(end, [c.id for c in left_to_load(question, journal, front)])
            summary = summary_of(question, journal)
            links = tracker.conclude(
                summary,
                "\n".join(plan_lines(plan)),
                # of a language model none: its checkpoint is as large as the model, and made again from its recipe
                models=lambda one: None if question.model.is_language_model else artifact_of(question, one, bench)[1],
            )
        statistics = observed_statistics(question, bench)
    return SweepResult(
        experiment=question,
        summary=summary,
        end=end,
        plan=plan,
        took_s=time.gone_s,
        calibration=None if statistics is None else calibration_line(statistics),
        links=tuple(links),
    )


def _probed(executor: Worker, time: RunTime) -> float:
    try:
        return executor.probe(until=time.end)
    except TimeUp:
        raise ConfigError(
            f"{time.limit_s:g} s are over before the float model has been compiled and called a few times.",
            key="--timeout, budget.timeout",
            hint="Allow more time.",
        ) from None


def _by_importance(summary: Summary) -> list[Evaluation]:
    """The front as it is confirmed: who would be recommended now, then the best in the first objective."""
    chosen = summary.recommended.candidate_id if summary.recommended is not None else None
    return sorted((member.evaluation for member in summary.front), key=lambda e: e.candidate.id != chosen)


def _time_neighbours(journal: Journal, executor: Worker, time: RunTime, summary: Summary) -> None:
    """Time what is missing to say where the recommended candidate's speed-up comes from, in a part of what is left."""
    known, until = summary.neighbours, perf_counter() + NEIGHBOURS_SHARE * time.left_s
    for candidate in missing_between(summary)[:MOST_NEIGHBOURS]:
        if perf_counter() >= until:
            break
        try:
            latency = executor.time(candidate, until=until)
        except TimeUp:
            break
        except CandidateError as error:
            _log.info("%s cannot be timed: %s", candidate.short_id, error)
            continue
        known = (*known, Neighbour(candidate=candidate, latency=latency))
        write_neighbours(journal.root, known)


class _Heard:
    """Tells its caller what is evaluated, and remembers which stage began last."""

    def __init__(self, on_stage: Callable[[Candidate, str], None], on_evaluation: OnEvaluation) -> None:
        self._on_stage, self._on_evaluation = on_stage, on_evaluation
        self.now: tuple[Candidate, str] | None = None
        self.searching = True

    def began(self, candidate: Candidate, stage: str) -> None:
        self.now = (candidate, stage)
        self._on_stage(candidate, stage)

    def evaluated(self, evaluation: Evaluation, *, reused: bool) -> None:
        self._on_evaluation(evaluation, reused)


@contextlib.contextmanager
def _noted(
    journal: Path, time: RunTime, heard: _Heard, command: str
) -> Iterator[Callable[[SweepEnd, Sequence[str]], None]]:
    """Note how the run ended: what it is told at the end, or else which candidate was in flight at Ctrl-C."""

    def note(reason: str, flight: tuple[Candidate, str] | None, unloaded: Sequence[str] = ()) -> None:
        candidate, stage = flight or (None, None)
        write_last_run(
            journal,
            LastRun(
                reason=reason,
                limit_s=time.limit_s,
                seconds=time.gone_s,
                unloaded=tuple(unloaded),
                interrupted=None if candidate is None else candidate.id,
                stage=stage,
                command=command,
            ),
        )

    def ended(end: SweepEnd, unloaded: Sequence[str]) -> None:
        flight = end.interrupted
        note(end.reason, None if flight is None else (flight.candidate, flight.stage), unloaded)

    try:
        yield ended
    except KeyboardInterrupt:
        note("interrupted", heard.now if heard.searching else None)
        raise


def plan_lines(made: Plan) -> list[str]:
    bound = "" if made.space.exact else "at most "
    files, call = ("checkpoints", "window") if made.language else ("compiles", "call")
    together = f"on {made.cards} cards at once " if made.cards > 1 else ""
    of = "" if made.available_bytes is None else f" of {made.available_bytes / 1e9:.1f} GB that can be had"
    return [
        f"space:      {bound}{made.space.candidates} candidates, {made.space.compiles} distinct {files}",
        *(f"service:    {sentence}" for sentence in made.service),
        f"this sweep: {made.trials} candidates, {made.done} done, {made.todo} to do (at most {made.compiles} {files})",
        f"time:       about {minutes(made.total_s)} to search {together}({made.candidate_s:.1f} s a candidate, "
        f"from {made.basis}; one float {call} takes {made.call_ms:.2f} ms)" + _whole(made),
        f"limit:      {_division(made)}",
        f"disk:       at most {made.disk_bytes / 1e9:.2f} GB of {made.free_bytes / 1e9:.1f} GB free",
        f"memory:     up to {made.memory_bytes / 1e9:.2f} GB{of}",
        *(f"scoring:    {sentence}" for sentence in made.scoring),
        *(f"mind:       {warning}" for warning in made.warnings),
    ]


def planned_words(made: Plan, took_s: float) -> str:
    """'Planned 3 min 09 s to 6 min 45 s, took 4 min 10 s.'"""
    return f"Planned {_between(made)}, took {minutes(took_s)}."


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


def log(experiment: Experiment | Path | str, *, workspace: Path | str | None = None) -> tuple[str, ...]:
    """Write into MLflow what it lacks of the last sweep; nothing is measured, and nothing is written twice.

    Returns:
        Links into MLflow's UI.

    Raises:
        ConfigError: there was no sweep, or the environment names no server of MLflow's.
        ToolchainError: MLflow cannot be used, or another process sweeps this experiment.
    """
    with opened(experiment, workspace) as (question, bench):
        journal = journal_of(question)
        with (
            exclusive(journal),
            tracked(question, journal, later=False) as tracker,
        ):
            summary = summary_of(question, journal)
            return tuple(tracker.complete(summary, models=lambda chosen: artifact_of(question, chosen, bench)[1]))
