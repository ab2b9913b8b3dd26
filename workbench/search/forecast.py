"""What a sweep would take, stage by stage, before any of it is done.

A candidate pays for what it changes: compiling once for equal files, accuracy once for equal outputs, timing once for
equal structures, apart from those that are timed all the same as an audit. Which candidates are equal is known of
compiled files alone, so here it is told by the settings, over candidates drawn from the space:

    files, outputs   everything but how it is served
    structure        of these, all but what only chooses the values of scales: algorithm, percentile, symmetry
    compiler runs    files, or one for each batch and length where the target compiles each by itself
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from workbench.evaluation.reuse import AUDITED
from workbench.inputs.experiment import Experiment
from workbench.prediction.curve import FEWEST_CALLS
from workbench.prediction.stage import SURFACE_ROUNDS, service_choices, serving_lengths, surface_shapes
from workbench.search.effort import FULL, Effort
from workbench.shipping.load_confirmation import LOAD_START_S, SHORTEST_LOAD_S
from workbench.space.space import Forbidden, build, compile_key, draw, size
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest, encode

CALL_SHARE = 0.8
"""One call of a candidate against one of the float model, in the mean: of 8 of the quickstart, at the same lengths, on
one thread or two."""
UNTIMED_CALLS = 90
"""Of each session beside those that count: until the times settle, and one before each block of a round."""
UNTIMED_ROUNDS = 3
MEMORY_S = 1.0
"""A process that loads the candidate alone."""
SIMULATION_S = 1.5
"""Of the service settings of one candidate, roughly."""
_SCALES_ONLY = ("algorithm", "percentile", "activation_symmetric")
_MOST_DRAWS = 20
"""For each candidate that is wanted, before a space counts as nearly empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """So many of so many candidates differ in what is computed, in what is timed, in what the compiler is run for."""

    candidates: int
    outputs: int
    structures: int
    compiler_runs: int
    rows: float = 0.0
    """Of mean length, that one call of each shape computes, of a candidate in the mean."""
    one_file_a_shape: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of measuring one candidate, by what an `Effort` cuts: in the search, where it shares nothing with others,
    and where it is confirmed.

    Attributes:
        opening_s: of building, opening and checks; it stays whatever the effort, as do `memory_s`, `short_s` (the
            search's short look) and `simulation_s` (of its service settings).
        calls_s, samples_s, curve_s: of timed calls, of scoring, of a batch curve.
        row_s: of what one call of each shape computes, where times are modelled: the host computes it all the same.
        load_s: of load in full, which may be longer than the experiment asks for (`asked_load_s`), to know a P99.
    """

    opening_s: float = 0.0
    samples_s: float = 0.0
    short_s: float = 0.0
    calls_s: float = 0.0
    memory_s: float = 0.0
    curve_s: float = 0.0
    simulation_s: float = 0.0
    row_s: float = 0.0
    load_s: float = 0.0
    asked_load_s: float = 0.0

    def searched_s(self, effort: Effort, distinct: Distinct) -> float:
        """Of one of so many candidates of a search, with what they share paid for once."""
        if not distinct.candidates:
            return 0.0
        outputs = distinct.outputs / distinct.candidates
        reusing = (1 - distinct.structures / distinct.candidates) * (1 - AUDITED)
        full_s = self.memory_s + (self.calls_s + self.curve_s) * effort.calls
        timing_s = self.short_s + full_s + self.row_s * distinct.rows
        files = distinct.compiler_runs / distinct.candidates if distinct.one_file_a_shape else 1.0
        scoring_s = self.samples_s * effort.samples * outputs
        return self.opening_s * max(1.0, files) + scoring_s + timing_s * (1 - reusing) + self.simulation_s

    def confirmed_s(self, effort: Effort) -> float:
        """Of its confirmation."""
        curve_s = self.curve_s if effort.curve else 0.0
        measured_s = self.opening_s + self.memory_s + self.calls_s * effort.calls + self.samples_s * effort.samples
        return measured_s + curve_s + self.loaded_s(effort)

    def loaded_s(self, effort: Effort) -> float:
        """The part of it for serving and loading."""
        if not self.load_s:
            return 0.0
        return LOAD_START_S + (self.load_s if effort == FULL else max(SHORTEST_LOAD_S, self.asked_load_s * effort.load))


def distinct_among(experiment: Experiment, wanted: int) -> Distinct:
    """Among the baseline, the presets, and candidates drawn by the experiment's seed, `wanted` in all.

    A sampler that has learned draws more alike ones than that, so these counts are rather too high.
    """
    found = {c.id: c for c in _drawn(experiment, wanted)}
    candidates = list(found.values())[:wanted]
    shapes = [candidate.compile.one_file_a_shape() for candidate in candidates]
    return Distinct(
        candidates=len(candidates),
        outputs=len({compile_key(candidate) for candidate in candidates}),
        structures=len({_structure(candidate) for candidate in candidates}),
        compiler_runs=len({run for candidate in candidates for run in _compiler_runs(candidate)}),
        rows=fmean(map(_tokens, candidates)) / _mean_length(experiment) if candidates else 0.0,
        one_file_a_shape=any(shapes),
    )


def _drawn(experiment: Experiment, wanted: int) -> list[Candidate]:
    space, rng = experiment.space, random.Random(experiment.seed)
    wanted = min(wanted, size(space).candidates)
    found = {experiment.baseline.id: experiment.baseline}
    first = [preset.assignment for preset in space.presets]
    for number in range(_MOST_DRAWS * wanted):
        if len(found) >= wanted:
            break
        try:
            candidate = build(space, first[number] if number < len(first) else draw(space, rng))
        except Forbidden:
            continue
        found.setdefault(candidate.id, candidate)
    return list(found.values())


def _structure(candidate: Candidate) -> str:
    body = candidate.to_json()
    body["quantization"] = {n: value for n, value in body["quantization"].items() if n not in _SCALES_ONLY}
    return digest(body)


def _tokens(candidate: Candidate) -> int:
    batches, lengths = candidate.compile.compiled_batches(), candidate.compile.compiled_lengths()
    return sum(batches or (candidate.serving.batch,)) * sum(lengths or (1,))


def _compiler_runs(candidate: Candidate) -> set[str]:
    settings = candidate.compile
    batches, lengths = settings.compiled_batches(), settings.compiled_lengths()
    if not settings.one_file_a_shape() or not batches:
        return {compile_key(candidate)}
    body = candidate.to_json() | {"serving": None}
    shapes = [((batch,), (length,) if lengths else ()) for batch in batches for length in lengths or (0,)]
    return {digest(body | {"compile": encode(settings.for_shapes(*shape))}) for shape in shapes}


def search_cost(experiment: Experiment, call_ms: float, opening_s: float, *, timed: bool) -> Cost:
    """Of a candidate in the search, from one call of the float model.

    Args:
        timed: False where times are modelled, which takes a call of each shape.
    """
    settings, both_s = experiment.measure, (1 + CALL_SHARE) * call_ms / 1000
    samples = experiment.dataset.size("validation") * experiment.dataset.calls_a_sample
    return Cost(
        opening_s=opening_s,
        samples_s=samples * CALL_SHARE * call_ms / 1000,
        short_s=(settings.short_calls + UNTIMED_CALLS) * both_s * timed,
        calls_s=(settings.calls + UNTIMED_CALLS) * both_s * timed,
        memory_s=MEMORY_S * timed,
        curve_s=curve_s(experiment, CALL_SHARE * call_ms) * timed if experiment.service is not None else 0.0,
        simulation_s=SIMULATION_S if experiment.service is not None else 0.0,
        row_s=0.0 if timed else CALL_SHARE * call_ms / 1000 / experiment.baseline.serving.batch,
    )


def curve_s(experiment: Experiment, call_ms: float) -> float:
    """Of timing a curve over batches and lengths: its budget, or the fewest rounds where they take longer.

    Args:
        call_ms: of one call at the batch and the lengths that the baseline is called with.
    """
    if experiment.service is None or experiment.space.service is None:
        return 0.0
    batches, lengths = surface_shapes(experiment, experiment.baseline)
    rounds = FEWEST_CALLS
    if service_choices(experiment, experiment.baseline).sequence_bins:  # three lengths, and two between to check them
        middle, rounds = lengths[len(lengths) // 2], SURFACE_ROUNDS
        ends = lengths[0] + middle + lengths[-1]
        computed = ends * (1 + max(batches)) + max(batches) * (ends + middle) // 2
    else:
        computed = sum(lengths) * sum(batches) if any(lengths) else sum(batches)
    round_s = computed * call_ms / 1000 / experiment.baseline.serving.batch / _mean_length(experiment)
    return UNTIMED_ROUNDS * round_s + max(experiment.service.curve_s, rounds * round_s)


def _mean_length(experiment: Experiment) -> float:
    """Of the baseline's samples as they are padded; 1 where they are no texts."""
    tokens, bins = experiment.dataset.length_sample(), np.array(serving_lengths(experiment, experiment.baseline))
    if tokens is None or not len(tokens):
        return 1.0
    return float(bins[np.minimum(np.searchsorted(bins, tokens), len(bins) - 1)].mean())
