"""INT8 beside float as soon as anything can be said of it: which INT8 candidates come first, and a short look at each.

A search is cut at any moment. So the two INT8 candidates that are the best bets on this target and CPU come right after
the float baseline, and before anything is measured in full each is looked at: made, a few samples, a few calls beside
the baseline. A look is shown as provisional and kept nowhere; its files lie in the store for the evaluation that
follows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.build import artifact_of
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.outcomes import size, take
from workbench.search.stages.accuracy import smoke, with_accuracy
from workbench.search.stages.latency import timed_calls
from workbench.search.stages.predict import may_wait
from workbench.search.stages.request import Progress, Request, StageResult, refuse_float
from workbench.space.space import Forbidden, build, suggest
from workbench.targets import described
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar

FIRST = 2
"""INT8 candidates that come before all others."""
FEWEST_SAMPLES, MOST_SAMPLES, SAMPLES_S = 16, 256, 4.0
"""Of a look: doubled until so many are scored, or so many seconds are gone."""
TIMED_S = 20.0
"""Of its timing, where calls take long."""
LOOKED = "a first look"
INT8_FIRST = "INT8 by this scheme, with the first choice of everything else"
_SCHEME = "quantization.scheme"
Named = tuple[str, Mapping[str, Scalar]]


def first_int8(experiment: Experiment) -> list[Named]:
    """(name, assignment) of the INT8 candidates that come first: of different schemes and targets where there are.

    The space's own presets in its order, but for targets whose INT8 is no faster than float on this CPU, which come
    last; where it has none, each scheme with the first choice of everything else. None of language models, whose
    recipes are their presets.
    """
    if experiment.model.is_language_model:
        return []
    candidates = list[Named]()
    presets = [(p.name, p.assignment) for p in experiment.space.presets]
    for name, assignment in (*presets, *(("", assignment) for assignment in _defaults(experiment))):
        with contextlib.suppress(Forbidden):
            if build(experiment.space, assignment).quantization.scheme != "none":
                candidates.append((name, assignment))
    candidates.sort(key=lambda one: not described(_target(experiment, one[1])).int8_pays())
    kinds = [(_target(experiment, assignment), assignment[_SCHEME]) for _, assignment in candidates]
    others = [one for place, one in enumerate(candidates) if kinds.index(kinds[place]) == place]
    others += [one for one in candidates if one not in others and one[0]]
    return others[:FIRST]


def _target(experiment: Experiment, assignment: Mapping[str, Scalar]) -> str:
    return str(assignment.get("target", experiment.targets[0]))


def _defaults(experiment: Experiment) -> Iterator[Mapping[str, Scalar]]:
    """Each scheme with the first choice of everything else."""
    parameter = next((p for p in experiment.space.parameters if p.name == _SCHEME), None)
    for scheme in parameter.choices if parameter is not None else ():

        def choose(name: str, choices: tuple[Scalar, ...], scheme: Scalar = scheme) -> Scalar:
            return scheme if name == _SCHEME else choices[0]

        yield suggest(experiment.space, choose)


def to_look_at(experiment: Experiment) -> list[Candidate]:
    """Those of `first_int8` at which a short look is possible: no sets of shapes, each of which is a compile."""
    candidates = [build(experiment.space, assignment) for _, assignment in first_int8(experiment)]
    return [candidate for candidate in candidates if not may_wait(experiment, candidate)]


def look(request: Request, progress: Progress, sessions: contextlib.ExitStack) -> None:
    """Some seconds of a candidate: its accuracy over the first samples, its times in the short measurement."""
    experiment, candidate = request.experiment, request.candidate
    with progress.stage("check"):
        request.check()
    artifact, directory = artifact_of(experiment, candidate, request.bench, progress, split=request.split)
    refuse_float(candidate, artifact)
    with progress.stage("smoke"):
        opened = request.opened(artifact, directory, sessions)
        if progress.then(smoke(request, progress.result, opened)):
            return
    if not experiment.dataset.indexed:  # a corpus takes longer to embed than a look may
        with progress.stage("accuracy_subset"):
            float_file, _ = artifact_of(experiment, experiment.baseline, request.bench)
            of_float = replace(opened, candidate=experiment.baseline, artifact=float_file, session=opened.exact)
            ours, theirs = request.scores(opened), request.scores(of_float)
            if opened.reference is not None:
                theirs.measure_afresh()  # what the store has are the baseline's answers
            progress.then(_scored(request, progress.result, ours, theirs))
    with progress.stage("latency_short"):
        calls = experiment.measure.short_calls
        latency = timed_calls(request, opened, calls, anchor=False, limit_s=TIMED_S)
        progress.then(progress.result.measured(latency=latency).stopped(LOOKED))


def _scored(request: Request, result: StageResult, ours: AccuracyPass, theirs: AccuracyPass) -> StageResult:
    """Over ever more samples, as long as the next step is expected to end within the time."""
    count, began = FEWEST_SAMPLES, time.perf_counter()
    while True:
        outcomes, others = ours.first(count), theirs.first(count)
        scored = min(size(outcomes), size(others))
        result = with_accuracy(request, result, take(outcomes, scored), take(others, scored))
        gone_s = time.perf_counter() - began
        if scored < count or count >= MOST_SAMPLES or 2 * gone_s > SAMPLES_S:
            return result
        count *= 2
