"""Writing the experiment file: how many samples score a candidate, what loss they can show, how a service is asked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from workbench.commands.init.manifest import scalar
from workbench.commands.init.model import Outline
from workbench.evaluation.float_run import FloatRun
from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics import MeaningScorer, counted_in_a_sample, scorer_of, usual_loss
from workbench.targets import described
from workbench.values.model import Model

_FEWEST = 50
"""Samples that an experiment may ask for."""
_MANY = (3000, 6000)
"""Validation and holdout samples beyond which every pass costs more than a candidate gains."""
_CALIBRATION_BATCH = 8


USUAL_LIMIT_PP = 0.5
_LIMITS_PP = (USUAL_LIMIT_PP, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)


def _constraints(dataset: Dataset, model: Model, run: FloatRun, samples: int) -> list[str]:
    """The limit on the loss: the usual one, or more where that is less than one decision of the data.

    Args:
        samples: of the smaller of the splits that are scored.
    """
    own = dataset.metric
    usual_pp, counted, what, why = USUAL_LIMIT_PP, samples, "samples", ""
    if own is not None and own.unit_of(own.name):
        return _unknown_limit(own.unit_of(own.name))
    if dataset.task == "tensors" and own is None and dataset.retrieval is None:
        with contextlib.closing(scorer_of(dataset, model)) as scorer:
            usual = usual_loss(scorer)
            if usual is None:
                return _unknown_limit(scorer.unit)
            if scorer.unit:
                return _limit("accuracy_loss", usual, scorer.unit, f"the usual limit of {scorer.primary}")
            each = counted_in_a_sample(scorer, run.rows)
        usual_pp, why = 100 * usual, f"{scorer.primary} is usually allowed {100 * usual:g}"
        if each is None:  # no loss is too fine for it
            return _limit("accuracy_loss_pp", usual_pp, "percentage points", why)
        counted, what = max(1, round(each * samples)), "samples" if each == 1 else "decisions"
    worst = limit_pp(counted, usual_pp)
    lines = _limit("accuracy_loss_pp", worst, "percentage points", why)
    if worst > usual_pp:
        one, need = 100 / counted, math.ceil(100 / usual_pp) + 1
        lines += [
            f"  # One of {counted} {what} is {one:.2g} points, and chance would decide on a finer limit;",
            f"  # with {need} {what} in validation and holdout each, {usual_pp:g} can be asked for.",
        ]
    return lines


def _unknown_limit(unit: str) -> list[str]:
    said = f"# Accuracy is in {unit} here, and nobody knows what loss is usual: state it, accuracy_loss: LOSS."
    return [said, "constraints: {}"]


def _limit(key: str, worst: float, unit: str, why: str) -> list[str]:
    loss = f"at most so many {unit} worse than the float model" + (f"; {why}" if why else "")
    return ["constraints:", f"  {f'{key}: {worst:g}':<36}# {loss}"]


def limit_pp(counted: int, usual_pp: float) -> float:
    """The usual limit where it is more than one of so many, else the smallest usual one that is, in points."""
    return next((limit for limit in (usual_pp, *_LIMITS_PP) if limit >= usual_pp and 100 / counted < limit), 100.0)


_CALLS = (1000, 500, 200, 100, 60)
_TIMING_S = 60.0
"""For the timed calls of a candidate and of the baseline beside it."""


_JUDGED = {"classification": "share of samples in the right class", "ner": "entity-level F1"}


def _judged_by(dataset: Dataset, model: Model) -> str:
    """What accuracy is, for people."""
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        if dataset.metric is not None:
            return f"{scorer.primary}, the metric of the dataset's manifest"
        if dataset.retrieval is not None:
            return f"{scorer.primary} of the documents of {dataset.retrieval.corpus.path.name}"
        labelled = isinstance(scorer, MeaningScorer) and scorer.has_labels
        truth = "the data's labels" if labelled else "the float model's answers"
        return _JUDGED.get(dataset.task, f"{scorer.primary}, compared with {truth}")


def experiment_text(
    name: str,
    about: str,
    model: str,
    outline: Outline,
    dataset: Dataset,
    run: FloatRun,
    *,
    cores: int,
    service: bool = True,
) -> str:
    """The experiment file.

    Args:
        name: of the experiment and its space.
        about: of the model, and so of the dataset's manifest.
        model: the path to write for its file.
        service: whether one can be asked for.
    """
    titles = " or ".join(described(target).title for target in outline.targets)
    targets = ", ".join(outline.targets)
    host, start = described(outline.target).on_host, outline.start.rehearsal
    rehearsed = "first, and every time is modelled, not measured; results say so."
    no = "# No `service:`: a model that carries a state from call to call is not served by batches of requests."
    target = targets if len(outline.targets) == 1 else f"[{targets}]"
    first = "latency_p50_ms" if host or not service else "service_throughput_per_s"
    there = (dataset.size("validation"), dataset.size("holdout"))
    used = [min(size, max(most, _FEWEST)) for size, most in zip(there, outline.start.scored or _MANY, strict=True)]
    available = dataset.size("calibration")
    batch, samples = min(_CALIBRATION_BATCH, available), min(outline.start.calibration_samples, available)
    if outline.model.fixed_batch is not None:  # such a model takes full batches only
        batch = outline.model.fixed_batch
        samples = max(batch, samples // batch * batch)
    lines = [
        "# One experiment file is one question; the same file and seed ask it again. Paths are relative to this file.",
        f"#   workbench plan experiments/{name}.yaml      says what a sweep would cost",
        f"#   workbench sweep experiments/{name}.yaml     searches; stop it at any time, the same command goes on",
        *([f"# Without the device: {start} {rehearsed}"] if start else []),
        "version: 1",
        f"name: {scalar(name)}",
        f"about: Which INT8 and serving settings make {about} faster on {titles} without losing accuracy?",
        f"model: {scalar(model)}",
        f"dataset: {scalar(f'../calibration/{about}.yaml')}",
        f"{f'target: {target}':<40}# what executes the model",
        f"search_space: {scalar(f'../search_spaces/{name}.yaml')}  # what may vary",
        f"calibration: {{samples: {samples}, batch: {batch}}}   # observed once; every quantization algorithm is "
        "derived from them",
        *(_scored(there, used, host) if tuple(used) != there and min(used) >= _FEWEST else []),
        f"# The axes of the Pareto front. accuracy: {_judged_by(dataset, outline.model)}.",
        "# Others: latency_p50_ms, latency_p95_ms, throughput_per_s, size_mb, peak_memory_mb"
        + (", service_throughput_per_s." if service else "."),
        f"objectives: [{first}, accuracy]",
        *_constraints(dataset, outline.model, run, min(used)),
        *(_service(outline, cores) if service else [no]),
        "budget: {trials: 24, timeout: 30m}      # whichever comes first",
        _measure(run.call_ms),
        "sampler: auto",
        "seed: 0",
    ]
    return "\n".join(lines) + "\n"


def _scored(there: Sequence[int], used: Sequence[int], host: bool) -> list[str]:
    why = "more would cost time and hardly narrow an interval"
    if not host:
        why = "an emulated device computes on the host, where a pass takes long; on a device take both lines out"
    return [
        f"# Of {there[0]} and {there[1]} samples so many score a candidate, and confirm the front: {why}.",
        f"validation: {{samples: {used[0]}}}",
        f"holdout: {{samples: {used[1]}}}",
    ]


def _measure(call_ms: float) -> str:
    """Fewer timed calls where a thousand would take most of the time that a candidate has."""
    calls = next((calls for calls in _CALLS if 2 * calls * call_ms <= 1000 * _TIMING_S), _CALLS[-1])
    if calls == _CALLS[0]:
        return (
            "measure: {calls: 1000, short_calls: 100}  # timed calls in full (P99 needs 1000), and in the first quick "
            "look"
        )
    return (
        f"measure: {{calls: {calls}, short_calls: {max(20, calls // 10)}}}  # timed calls in full, and in the first "
        f"quick look; 1000 of {call_ms:.3g} ms would take too long, but P99 needs them"
    )


def _service(outline: Outline, cores: int) -> list[str]:
    start = outline.start.service
    clients, limit = start.concurrency or max(4, 2 * cores), start.p99_ms
    said = "# nobody's demand yet: write what your users accept"
    return [
        "# How requests come: each candidate gets the batch, timeout and workers of its space that serve most of them",
        "# within the limit. Without this key no service is looked for.",
        "service:",
        f"  concurrency: {clients:<22} # clients that each wait for their answer; or rate: 200 (a second)",
        f"  # p99_ms: 100                        {said}" if limit is None else f"  p99_ms: {limit:<27g} {said}",
        *(f"  {line}" for line in start.host),
    ]
