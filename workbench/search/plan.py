"""Plan: what a sweep would do, said before any of it is done: candidates, compiles, time, disk, and what is there."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.float_run import run_float
from workbench.evaluation.metric_check import decided_alike, refuse_imperfect
from workbench.graph.apart import is_large
from workbench.graph.structure import layers_inside
from workbench.inputs.dataset.batch import Batch
from workbench.inputs.dataset.language import samples, windows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.score import Outputs
from workbench.inputs.metrics.scorer import scoring_words
from workbench.prediction.host_costs.measure import measuring_s
from workbench.search.first_look import FIRST
from workbench.search.forecast import (
    CONFIRMATION_SHARE,
    REPORT_S,
    USUAL_FRONT,
    Cost,
    Division,
    confirmation_cost,
    divided,
    known_cost,
    search_cost,
)
from workbench.search.refusals import check_targets, too_fine
from workbench.search.stages.request import EFFORTS, FULL, Effort, effort_of_search
from workbench.space.served_bins import words as served_words
from workbench.space.space import SpaceSize, size
from workbench.targets.language import few_tokens, language_target
from workbench.values.errors import ConfigError
from workbench.values.system.cpu import available_memory_bytes

PROBE_CALLS = 24
QUANTIZING_PASSES = 2.0
"""Of the blocks over the calibration texts: smoothing and ranges, mostly [inferred from recipes.py's phases]."""
OFF = (0.6, 3.0)
"""What runs took of their plans, from the least seen to the most: nobody knows before who is rejected early, how many
are on the front, and what else the machine will do."""
_AT_LEAST = 1 + FIRST
"""Candidates that every limit has room for: the float baseline and the first INT8 ones. Where it has not, measurements
become shorter before candidates go."""
_SPARE = 1.5
"""Of the time that they need by plan: the first candidates are those that share nothing."""
START_S = 8.0
"""Of a run before its plan is known, roughly: imports, the float model compiled and called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A forecast. Times come from this experiment's own evaluations where there are some, else from a probe of the
    float model and from what its candidates are taken to share (`forecast`).

    Attributes:
        whole_s: the run from its start to its report, within its limit; 0 where nothing is to be searched.
        division: how the time limit of the whole run is divided.
        effort: of the search: less than all where the limit leaves no room for the baseline and two INT8 candidates.
        least_s: a limit that has room for these with the least effort, and for confirming the baseline and one of them.
        space: distinct candidates and compiles of the whole space.
        todo: evaluations this sweep would still make.
        compiles: at most so many distinct compiles among them.
        call_ms: one call of the float baseline.
        cards: on which candidates are measured at once.
        once_s: of the search, for what serving costs this host, where that is not known yet.
        basis: what the times rest on, in words.
        memory_bytes: of all processes at the peak of the sweep.
        available_bytes: memory that can be had before the machine swaps; None where the system does not say.
        serves: whether front members are loaded for real.
        scoring: what outputs mean and must keep, a sentence each; empty where labels decide.
        service: what each candidate's service chooses besides batch, timeout and workers, in sentences.
        language: of a language model, of which checkpoints are written and nothing is compiled.
        warnings: what the sweep could not tell, and kinds of candidates that will be refused, in sentences.
    """

    space: SpaceSize
    trials: int
    done: int
    todo: int
    compiles: int
    call_ms: float
    candidate_s: float
    once_s: float
    total_s: float
    cards: int
    whole_s: float
    division: Division
    effort: Effort
    least_s: float
    basis: str
    disk_bytes: int
    free_bytes: int
    memory_bytes: int
    available_bytes: int | None
    serves: bool
    scoring: tuple[str, ...] = ()
    service: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    language: bool = False

    @property
    def whole_between_s(self) -> tuple[float, float]:
        """What it may take, which a limit ends."""
        low, high = (each * self.whole_s for each in OFF)
        return low, max(self.whole_s, min(high, self.division.limit_s))


def make_plan(
    experiment: Experiment,
    bench: Bench,
    *,
    trials: int | None = None,
    limit_s: float | None = None,
    probe: Callable[[], float] | None = None,
    gone: Callable[[], float] = lambda: START_S,
    cards: int = 1,
    here: int | None = None,
) -> Plan:
    """Forecast a sweep; costs one compile of the float model and a few calls of it.

    Args:
        limit_s: of the whole run; None for the experiment's.
        gone: seconds of the run so far, asked once the probe is over.
        probe: asks `probe_call_ms` in another process; None to ask it here.
        cards: that candidates are measured on at once, after the float baseline.
        here: how many of them this machine feeds; None for all.

    Raises:
        CandidateError: the float model itself cannot be compiled or run on the target.
        ConfigError: a sweep would take more memory than there is, a target cannot run the model, or what outputs mean
            is wrong.
    """
    here = cards if here is None else here
    check_memory(experiment, cards=here)
    space = size(experiment.space)
    budget = min(experiment.trials if trials is None else trials, space.candidates)
    known = {i: e for i, e in bench.journal.evaluations().items() if not e.deserves_another}
    todo = max(0, budget - len(known))
    refused = check_targets(experiment, bench) if todo else ()
    runs: tuple[tuple[Batch, Outputs], ...] = ()
    if todo and not experiment.model.is_language_model:
        runs = run_float(experiment.model, experiment.dataset).rows
        refuse_imperfect(experiment.dataset, experiment.model, runs)
    alike = decided_alike(experiment.dataset, experiment.model, runs) if runs else ""
    baseline = known.get(experiment.baseline.id)
    latency = None if todo or baseline is None else baseline.measurement.latency
    if latency is not None:  # nothing is left to do, so nothing is asked of the machine
        call_ms = latency.p50_ms.value
    else:
        call_ms = probe_call_ms(experiment, bench) if probe is None else probe()
    gone_s = gone()
    measured = [known_cost(experiment, e, known) for e in known.values() if e.status == "complete"]
    service, model = experiment.service, experiment.model
    emulated, language, once_s = bench.toolchain(experiment.baseline).emulated, model.is_language_model, 0.0
    if todo and service is not None and service.host is None and not emulated:
        once_s = measuring_s(model, experiment.dataset, bench.store)
    limit_s = experiment.timeout_s if limit_s is None else limit_s
    wanted = min(todo, _AT_LEAST)
    effort = effort_of_search(experiment, known)
    if len(measured) >= 3:
        candidate_s = least_s = statistics.mean(e.seconds for e in known.values() if e.status == "complete")
        basis = f"{len(measured)} complete evaluations of this sweep"
        cost = Cost(**{f.name: statistics.fmean(getattr(one, f.name) for one in measured) for f in fields(Cost)})
        division = divided(limit_s, cost)
    else:
        opened_s = 1.0 + model.size_bytes / 50e6
        if language:  # roughly, of quantizing: passes over the calibration tokens, by what a window takes
            tokens = sum(map(len, samples(experiment.dataset, experiment.calibration.samples)))
            opened_s += QUANTIZING_PASSES * tokens / _window(experiment) * call_ms / 1000
        searched = search_cost(experiment, call_ms, opened_s, timed=not (language or emulated))
        cost = confirmation_cost(experiment, searched, call_ms)
        division, least_s = divided(limit_s, cost), searched.searched_s(EFFORTS[-1])
        if not known and not language:
            room_s = (division.search_s - once_s) / _SPARE
            fitting = (each for each in EFFORTS if wanted * searched.searched_s(each) <= room_s)
            effort = next(fitting, EFFORTS[-1])
        candidate_s = searched.searched_s(effort)
        probed = "one block" if language else f"{PROBE_CALLS} calls"
        basis = f"a probe of {probed} of the float model"
    # the shortest limit with so much time for the search and for confirming the baseline and one member in full
    confirmed_s, least_s = 2 * cost.confirmed_s(FULL), wanted * least_s + once_s
    least_s = max(least_s + confirmed_s, least_s / (1 - CONFIRMATION_SHARE)) + REPORT_S
    # every card is fed by its host: with fewer processors than cards they wait for each other
    at_once = max(1, min(here, len(os.sched_getaffinity(0))) + cards - here)
    search_s = once_s + candidate_s * (min(1, todo) + max(0, todo - 1) / at_once)
    # a run is not over when its plan is made
    confirmation_s = min((1 + USUAL_FRONT) * cost.confirmed_s(FULL), division.confirmation_s)
    wanted_s = gone_s + min(search_s, division.search_s) + confirmation_s + min(REPORT_S, division.report_s)
    compiles = min(todo, space.compiles)
    # a checkpoint; else a lowered file and the compiled one, of which INT8 ones are a quarter of the float size
    left_bytes, inside = 2 * model.size_bytes, [] if language else [layers_inside(model)]
    if language:
        inside = few_tokens(sum(map(len, samples(experiment.dataset, experiment.calibration.samples))))
        left_bytes = language_target(bench.target(experiment.baseline)).checkpoint_bytes(model)
    return Plan(
        space=space,
        trials=budget,
        done=len(known),
        todo=todo,
        compiles=compiles,
        call_ms=call_ms,
        candidate_s=candidate_s,
        once_s=once_s,
        total_s=search_s,
        cards=cards,
        whole_s=min(wanted_s, division.limit_s) if search_s else 0.0,
        division=division,
        effort=effort,
        least_s=least_s,
        basis=basis,
        disk_bytes=compiles * left_bytes,
        free_bytes=shutil.disk_usage(bench.store.root).free,
        memory_bytes=memory_of(experiment, here),
        available_bytes=available_memory_bytes(),
        serves=service is not None and service.confirm_s > 0,
        scoring=scoring_words(experiment.dataset, experiment.model),
        service=tuple(filter(None, [served_words(experiment.space)])),
        warnings=(*too_fine(experiment, runs), *refused, *filter(None, (*inside, alike))),
        language=language,
    )


def probe_call_ms(experiment: Experiment, bench: Bench) -> float:
    """Milliseconds of one call of the float baseline: the mean of a few, over short and long samples alike.

    Raises:
        CandidateError: it cannot be compiled or run on the target.
    """
    baseline = experiment.baseline
    if experiment.model.is_language_model:
        target = language_target(bench.target(baseline))
        return target.window_ms(experiment.model, _window(experiment))
    artifact, directory = artifact_of(experiment, baseline, bench)
    feeds = timed_feeds(
        experiment.dataset.with_bins(baseline.sequence_bins),
        experiment.model,
        "validation",
        count=PROBE_CALLS,
        batch=baseline.serving.batch,
        seed=experiment.seed,
        length=experiment.measure.length,
    )
    session = bench.target(baseline).open(artifact, directory, baseline)
    try:
        for one in feeds:  # a runtime plans its memory at the first call of each shape
            session.run(one)
        times = []
        for one in feeds:
            began = time.perf_counter()
            session.run(one)
            times.append((time.perf_counter() - began) * 1000)
    finally:
        session.close()
    return statistics.fmean(times)


def _window(experiment: Experiment) -> int:
    return max(len(each.ids) for each in windows(experiment.dataset, "validation"))


# --- memory ----------------------------------------------------------------------------------------------------------

PROCESSES_BYTES = 500_000_000
"""Of this command and the process that evaluates, before they hold a model."""
CALIBRATION, CALIBRATION_OF_SMALL = 2.4, 12.0
"""Times the model's file, while its activations are observed."""
EXECUTED = 1.0
"""Times a language model's folder, while a checkpoint of it is executed beside the float model's head [inferred]."""
TORCH_BYTES = 400_000_000
SESSION = 1.3
"""Times the model's file, for every session that is open; two are while a candidate is timed beside the baseline."""
_FEEDS = 3
"""Inputs of the largest call that are held at once: the candidate's, the baseline's, and one that is being made."""
WORKER_BYTES = 250_000_000
"""Of a process that serves, beside its session."""


def memory_of(experiment: Experiment, cards: int = 1) -> int:
    """Bytes at the peak of a sweep.

    Of a language model, which is read block by block: its blocks may stay in memory while it is evaluated, and every
    run of the quantizer looks again at what it needs.

    Args:
        cards: of this machine, that candidates are measured on at once, each in a process of its own; 0 where other
            machines do everything.
    """
    size_bytes, choices = experiment.model.size_bytes, experiment.space.service
    if experiment.model.is_language_model:
        return PROCESSES_BYTES + TORCH_BYTES + int(EXECUTED * size_bytes)
    batches = next((p.choices for p in experiment.space.parameters if p.name == "serving.batch"), (1,))
    largest = max(experiment.calibration.batch, *(int(batch or 1) for batch in batches))
    sample = next(experiment.dataset.batches("validation", 1, stop=1)).feeds
    feeds = _FEEDS * largest * sum(array.nbytes for array in sample.values())
    if cards == 0:
        return PROCESSES_BYTES + feeds
    workers = 0  # of a service that members of the front are loaded in
    if experiment.service is not None and experiment.service.confirm_s > 0:
        workers = max(choices.workers, default=1) if choices is not None else 1
        workers *= experiment.service.devices
    calibrating = (CALIBRATION if is_large(size_bytes) else CALIBRATION_OF_SMALL) * size_bytes
    evaluating = max(calibrating, 2 * SESSION * size_bytes)  # two sessions: the candidate's and the baseline's
    others = (cards - 1) * (evaluating + WORKER_BYTES)
    serving = workers * (SESSION * size_bytes + WORKER_BYTES)
    return PROCESSES_BYTES + int(max(evaluating + others, serving)) + feeds


def check_memory(experiment: Experiment, available_bytes: int | None = None, cards: int = 1) -> None:
    """Refuse a sweep that this machine could only make by swapping.

    Args:
        available_bytes: None to ask the system.

    Raises:
        ConfigError: it would need more than there is.
    """
    available = available_memory_bytes() if available_bytes is None else available_bytes
    needed = memory_of(experiment, cards)
    several = f" on {cards} cards at once" if cards > 1 else ""
    if available is None or needed <= available:
        return
    raise ConfigError(
        f"a sweep of this model ({experiment.model.size_bytes / 1e9:.2f} GB){several} takes up to "
        f"{needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB can be had before the machine swaps.",
        file=experiment.model.path,
        hint="End other programs, lower serving.batch or service.workers, raise the container's limit, or take a "
        "larger machine.",
    )
