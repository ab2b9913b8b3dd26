"""Equivalence keys of measurements: the class of what runs, at which shapes and timed how, or scored how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from workbench.values.system.source_closure import closure_digest

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
