"""Which measurements of a sweep others may reuse, and which kinds of reuse an audit found wrong.

All of it is read from the sweep's evaluations and kept nowhere else. So what a kill or damage takes from the journal
is missing here too, and what is evaluated again can be reused again.

    source      measured itself in this sweep, on a machine that was quiet, or only changed its speed
    doubtful    reused, by a kind of reuse that an audit found wrong: to be measured anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.targets.base import Feeds
from workbench.targets.classes import numerics_class, time_class
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.measurement import Split
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse, reusable
from workbench.values.system.source_closure import closure_digest

AUDITED = 0.2
"""The share of candidates that measure what they could reuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """What one evaluation may take from others.

    Attributes:
        sources: equivalence key → id of the candidate whose measurement it is.
        stopped: kinds of reuse (see `kind_of`) that nobody takes any more.
        audited: this candidate measures all the same, and says how far the reused one would have been off.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    audited: bool = False


NOTHING_REUSABLE = Reusable()


def reusable_for(candidate: Candidate, evaluations: Mapping[str, Evaluation], seed: int) -> Reusable:
    """What this candidate may reuse of the evaluations of its sweep, by candidate id."""
    stopped = stopped_kinds(evaluations.values())
    others = (evaluation for candidate_id, evaluation in evaluations.items() if candidate_id != candidate.id)
    sources: dict[str, str] = {}
    for evaluation in sorted(others, key=lambda e: (e.started_at, e.candidate.id)):
        for reuse in _reusable_of(evaluation):
            if kind_of(evaluation.candidate, reuse) not in stopped:
                sources.setdefault(reuse.key, evaluation.candidate.id)
    return Reusable(sources=sources, stopped=stopped, audited=is_audited(candidate, seed))


def is_audited(candidate: Candidate, seed: int) -> bool:
    """Drawn by the sweep's seed and the candidate's content: the same whenever it is asked."""
    return int(digest([seed, "audit", candidate.id])[:8], 16) < AUDITED * 16**8


def stopped_kinds(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """Kinds of reuse of which an audit found one wrong."""
    wrong = {
        kind_of(e.candidate, reuse) for e, reuse in _pairs(evaluations) if reuse.audit and reuse.audit.agrees is False
    }
    return tuple(sorted(wrong))


def doubtful(evaluations: Sequence[Evaluation]) -> tuple[Candidate, ...]:
    """Candidates that reuse a measurement of a stopped kind."""
    stopped = stopped_kinds(evaluations)
    found = [e.candidate for e, reuse in _pairs(evaluations) if reuse.source and kind_of(e.candidate, reuse) in stopped]
    return tuple(dict.fromkeys(found))


def instead_of(before: Sequence[Reuse], now: Sequence[Reuse]) -> tuple[Reuse, ...]:
    """What is said of a candidate that is measured anew, each with the source of the measurement that it replaces."""
    sources = {reuse.kind: reuse.source for reuse in before if reuse.source is not None}
    return tuple(
        replace(reuse, replaces=sources[reuse.kind]) if reuse.kind in sources and reuse.source is None else reuse
        for reuse in now
    )


def kind_of(candidate: Candidate, reuse: Reuse) -> str:
    """Such as 'onnxruntime latency': one wrong claim of a target makes its others of that kind doubtful."""
    return f"{candidate.target} {reuse.kind}"


def _pairs(evaluations: Iterable[Evaluation]) -> Iterator[tuple[Evaluation, Reuse]]:
    return ((evaluation, reuse) for evaluation in evaluations for reuse in evaluation.reuse)


def _reusable_of(evaluation: Evaluation) -> Iterator[Reuse]:
    """What was measured here, whole and undisturbed."""
    latency, service = evaluation.measurement.latency, evaluation.measurement.service
    sound = {
        "latency": latency is not None and reusable(latency),
        "accuracy": evaluation.measurement.accuracy is not None,
        "curve": service is not None and reusable(service.curve),
    }
    if evaluation.status == "complete" and not evaluation.cut:
        yield from (reuse for reuse in evaluation.reuse if reuse.source is None and sound[reuse.kind])


# --- equivalence keys: the class of what runs, at which shapes and timed how, or scored how --------------------------

Shape = tuple[int, int | None]
"""Rows, and padded positions of a row; None where samples are no sequences."""


def latency_key(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    artifact: Artifact,
    directory: Path,
    feeds: Sequence[Feeds],
    calls: int,
) -> str:
    """Of the times of these feeds, in their order."""
    texts = experiment.dataset.preprocessor is not None
    first = [next(array for array in each.values() if array.ndim) for each in feeds]
    sizes = {(len(array), array.shape[1] if texts and array.ndim > 1 else None) for array in first}
    classes = _classes(candidate, bench, artifact, directory, sizes)
    shapes = [sorted((name, array.dtype.str, list(array.shape)) for name, array in each.items()) for each in feeds]
    return digest({"of": "latency", "classes": classes, "feeds": shapes, "calls": calls})


def curve_key(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    artifact: Artifact,
    directory: Path,
    batches: Sequence[int],
    lengths: Sequence[int],
    split: Split,
) -> str:
    """Of a curve or surface over these batches and lengths, ascending; length 0 where samples are no sequences."""
    assert experiment.service is not None  # there is no curve otherwise
    every = [(batch, length or None) for batch in batches for length in lengths]
    shapes = every if candidate.compile.compiles_shapes else [every[0], every[-1]]  # one file runs them all
    classes = _classes(candidate, bench, artifact, directory, shapes)
    fed = {"data": experiment.dataset.digest(split), "seconds": experiment.service.curve_s}
    return digest({"of": "curve", "classes": classes, "batches": batches, "lengths": lengths, **fed})


def accuracy_key(
    candidate: Candidate,
    bench: Bench,
    artifact: Artifact,
    directory: Path,
    *,
    witness: str,
    scored: Mapping[str, object],
) -> str:
    """Of the outcomes over a split.

    Args:
        witness: digest of the outputs for the smoke samples. So reuse is bit for bit right there, whatever a target
            claims of its classes.
        scored: how and on what they are scored (`AccuracyPass.scored`).
    """
    target = bench.target(candidate)
    name = bench.store.json_of(
        "numerics_class",
        _opened(candidate, bench, artifact),
        lambda: numerics_class(target, artifact, directory, candidate),
    )
    return digest({"of": "accuracy", "class": name, "witness": witness, "scored": scored})


def _classes(
    candidate: Candidate, bench: Bench, artifact: Artifact, directory: Path, shapes: Iterable[Shape]
) -> list[list[object]]:
    """The time class at each shape; kept in the store by content, since finding it reads or even converts files."""
    target = bench.target(candidate)
    found: list[list[object]] = []
    for batch, length in sorted(shapes, key=str):
        key = _opened(candidate, bench, artifact) | {"shape": [batch, length]}
        make = partial(time_class, target, artifact, directory, candidate, batch=batch, length=length)
        found.append([batch, length, bench.store.json_of("time_class", key, make)])
    return found


def _opened(candidate: Candidate, bench: Bench, artifact: Artifact) -> dict[str, object]:
    """What decides a class: the files, and how they are opened."""
    module = type(bench.target(candidate)).__module__
    return {
        "artifact": [[file.file, file.sha256] for file in artifact.files],
        "toolchain": artifact.toolchain,
        "opened_with": [candidate.compile, candidate.precision, candidate.serving, candidate.quantization.scheme],
        "code": closure_digest(module, "workbench.targets.classes", alone=(__name__,)),
    }
