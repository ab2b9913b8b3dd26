"""The keys that times are lent under: the class of what runs, at which shapes, timed how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.targets.base import Feeds
from workbench.targets.classes import time_class
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
    classes = _classes(candidate, bench, artifact, directory, {_shape(each, texts=texts) for each in feeds})
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


def _shape(feeds: Feeds, *, texts: bool) -> Shape:
    array = next(array for array in feeds.values() if array.ndim)
    return len(array), array.shape[1] if texts and array.ndim > 1 else None


def _classes(
    candidate: Candidate, bench: Bench, artifact: Artifact, directory: Path, shapes: Iterable[Shape]
) -> list[list[object]]:
    """The time class at each shape; kept in the store by content, since finding it reads or even converts files."""
    target = bench.target(candidate)
    found: list[list[object]] = []
    for batch, length in sorted(shapes, key=str):
        key = {
            "artifact": [[file.file, file.sha256] for file in artifact.files],
            "toolchain": artifact.toolchain,
            "opened_with": [candidate.compile, candidate.precision, candidate.serving, candidate.quantization.scheme],
            "shape": [batch, length],
            "code": closure_digest(type(target).__module__, "workbench.targets.classes", alone=(__name__,)),
        }
        name = bench.store.get_json("time_class", key)
        if name is None:
            name = time_class(target, artifact, directory, candidate, batch=batch, length=length)
            bench.store.put_json("time_class", key, name)
        found.append([batch, length, name])
    return found
