"""Who answers: each way to compute the model, opened, or the reason why it is not there; and how samples become the
calls of a service: batches within each length, and every shape that was compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import open_reference, whole_samples
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.score import Outputs
from workbench.targets import described
from workbench.targets.base import Array, Feeds, Session, computes_in_float32
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split

Rows = npt.NDArray[np.int64]
Run = Callable[[Feeds], dict[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A batch size and padded length that was compiled; no length where samples are no texts."""

    batch: int
    length: int | None

    def __str__(self) -> str:
        return f"batch {self.batch}" + ("" if self.length is None else f", length {self.length}")


def groups(window: Batch, data: Dataset, most: int) -> Iterator[tuple[Rows, Feeds]]:
    """The calls of a service that has these requests in its queues: (places in the window, feeds) of each.

    One queue for each padded length, batches of up to `most` rows in the order of arrival, the last of a queue as full
    as it is, as after its timeout.

    Args:
        data: with the lengths of the service, to the largest of which that holds a sample the window is padded.
    """
    axis, bins, own = _lengths(window, data)
    places = np.searchsorted(np.asarray(bins), own) if bins else np.zeros(len(window), dtype=np.int64)
    for place in np.unique(places):
        members = np.flatnonzero(places == place).astype(np.int64)
        for start in range(0, len(members), most):
            rows = members[start : start + most]
            feeds = {name: array[rows] for name, array in window.feeds.items()}
            if bins:
                feeds = {name: _cut(name, array, data, axis, bins[int(place)]) for name, array in feeds.items()}
            yield rows, feeds


def answered(window: Batch, calls: Iterator[tuple[Rows, Feeds]], run: Run) -> dict[str, Array]:
    """The outputs of all calls in the window's order; where calls differ in size, filled up with zeros."""
    parts = [(rows, run(feeds)) for rows, feeds in calls]
    found: dict[str, Array] = {}
    for name, first in parts[0][1].items():
        arrays = [outputs[name] for _, outputs in parts]
        if any(array.shape[:1] != (len(rows),) for (rows, _), array in zip(parts, arrays, strict=True)):
            continue  # it does not count samples
        largest = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
        made = np.zeros((len(window), *largest), dtype=first.dtype)
        for (rows, _), array in zip(parts, arrays, strict=True):
            for row, own in zip(rows.tolist(), array, strict=True):
                made[row][tuple(slice(size) for size in own.shape)] = own
        found[name] = made
    return found


def filled_shape(window: Batch, data: Dataset, split: Split, shape: Shape) -> Iterator[tuple[Rows, Batch, int]]:
    """Full batches of one compiled shape, made of the window's samples that fit: (places, batch, rows that count).

    The last one is filled up with its last sample again. Nothing where no sample fits.
    """
    fits = np.arange(len(window)) if shape.length is None else np.flatnonzero(window.lengths <= shape.length)
    source = data.split(split).source
    for start in range(0, len(fits), shape.batch):
        places = fits[start : start + shape.batch].astype(np.int64)
        rows = np.concatenate([places, np.repeat(places[-1:], shape.batch - len(places))])
        if shape.length is None:
            yield places, taken(window, rows), len(places)
            continue
        (batch,) = source.read([window.indices[rows]], shape.length)
        yield places, batch, len(places)


def taken(batch: Batch, rows: Rows) -> Batch:
    """Some samples of a batch, in the order given."""
    return Batch(
        feeds={name: array[rows] for name, array in batch.feeds.items()},
        targets=None if batch.targets is None else batch.targets[rows],
        indices=batch.indices[rows],
        valid=None if batch.valid is None else batch.valid[rows],
        truths=None if batch.truths is None else tuple(batch.truths[int(row)] for row in rows),
        sizes={name: sizes[rows] for name, sizes in batch.sizes.items()},
    )


def _lengths(window: Batch, data: Dataset) -> tuple[str, Sequence[int], Rows]:
    """(the axis that has bins, '' for texts; the bins, none where nothing is padded; the size of each sample)."""
    if data.preprocessor is not None:
        return "", data.preprocessor.bins, window.lengths
    sizing = data.sizing
    if sizing is None or len(sizing.binned) != 1 or sizing.steps or sizing.binned[0].name not in window.sizes:
        return "", (), window.lengths
    (use,) = sizing.binned
    return use.name, use.bins, window.sizes[use.name]


def _cut(name: str, array: Array, data: Dataset, axis: str, size: int) -> Array:
    if not axis:
        return np.ascontiguousarray(array[:, :size])
    sizing = data.sizing
    assert sizing is not None  # it names the axis
    at = [slice(size) if known == axis else slice(None) for known in sizing.names(name, array.ndim - 1)]
    return np.ascontiguousarray(array[(slice(None), *at)])


CHECKPOINT = "checkpoint"
"""Folder beside a model's ONNX file where its checkpoint is looked for, as `workbench example` leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to compute the model.

    Attributes:
        run: feeds of any rows → outputs.
        about: which files and versions, in words.
    """

    run: Run
    about: str = ""
    emulated: bool = False


class Missing(Exception):
    """A way that cannot be taken; the message says why."""


def on_the_host(experiment: Experiment, closing: contextlib.ExitStack) -> Way:
    """The prepared float model in ONNX Runtime, in float32."""
    session = _whole(open_reference(experiment.model), experiment, closing)
    return Way(run=session.run, about=f"{experiment.model.path.name} in ONNX Runtime on the host")


def of_checkpoint(experiment: Experiment, folder: Path | None) -> Way:
    """The checkpoint in PyTorch.

    Args:
        folder: None for the folder `checkpoint` beside the user's ONNX file.

    Raises:
        Missing: none is known, PyTorch is not installed, or it is of another kind of model.
        ConfigError: the folder that was named is no checkpoint.
    """
    model, task = experiment.model, experiment.dataset.task
    source = model.path if model.origin is None else model.origin.path
    found = folder or source.parent / CHECKPOINT
    if folder is None and not (found / "config.json").is_file():
        raise Missing(f"no checkpoint is known: there is no {found}; name it with --checkpoint")
    if task not in ("classification", "ner"):
        raise Missing(f"checkpoints of the task {task} are not read; only classification and ner are")
    try:
        from workbench.graph.export import load_checkpoint, logits_of
    except ImportError as error:
        raise Missing(f"PyTorch is not installed here ({error}); the extra [export] brings it") from error
    loaded = load_checkpoint(found, task)

    def run(feeds: Feeds) -> dict[str, Array]:
        return {"logits": logits_of(loaded, feeds)}

    return Way(run=run, about=f"{found.name} in PyTorch")


def compiled(
    experiment: Experiment, candidate: Candidate, bench: Bench, closing: contextlib.ExitStack, about: str
) -> Way:
    """A candidate's files on its target, as many as it compiles.

    Raises:
        CandidateError: it cannot be compiled or opened.
    """
    artifact, directory = artifact_of(experiment, candidate, bench)
    session = bench.target(candidate).open(artifact, directory, candidate)
    return opened(session, experiment, candidate, bench, closing, about)


def opened(
    session: Session,
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    closing: contextlib.ExitStack | None,
    about: str,
) -> Way:
    """A session that is open.

    Args:
        closing: closes it; None where somebody else does.
    """
    whole = _whole(session, experiment, closing)
    return Way(run=whole.run, about=about, emulated=bench.toolchain(candidate).emulated)


def float32_of(experiment: Experiment) -> Candidate:
    """The float baseline compiled so that nothing is rounded further than float32, one batch size at each of its
    lengths.

    Raises:
        Missing: its other settings forbid that.
    """
    baseline = experiment.baseline
    if computes_in_float32(baseline):
        return baseline
    settings = baseline.compile
    if settings.one_file_a_shape():
        settings = settings.for_shapes((baseline.serving.batch,), settings.compiled_lengths())
    mode = described(baseline.target).float32_mode
    try:
        return replace(baseline, precision=Precision(mode=mode), compile=settings)
    except ConfigError as error:
        raise Missing(f"the float model cannot be compiled with {mode} here: {error}") from error


def answers_like(recorded: Mapping[str, Array], places: Rows, like: Outputs, file: Path) -> dict[str, Array]:
    """The recorded answers at these places in the form of `like`'s: its names, and its sizes behind the samples, what
    is missing filled up with zeros. A single output needs not be called alike.

    Raises:
        ConfigError: they share no output of one rank.
    """
    names = {name: name for name in like if name in recorded}
    if not names and len(like) == len(recorded) == 1:
        names = {next(iter(like)): next(iter(recorded))}
    found: dict[str, Array] = {}
    for ours, theirs in names.items():
        array, shape = recorded[theirs], like[ours].shape
        if array.ndim != len(shape):
            continue
        made: np.ndarray[Any, Any] = np.zeros((len(places), *shape[1:]), dtype=array.dtype)
        common = tuple(slice(min(sizes)) for sizes in zip(shape[1:], array.shape[1:], strict=True))
        made[(slice(None), *common)] = array[places][(slice(None), *common)]
        found[ours] = made
    if not found:
        raise ConfigError(
            f"it answers {_shapes(recorded)}; the model gives {_shapes(like)}.",
            file=file,
            hint="Name its arrays as the model's outputs, [samples, ...] with as many axes.",
        )
    return found


def _shapes(outputs: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {['samples', *array.shape[1:]]}" for name, array in outputs.items())


def _whole(session: Session, experiment: Experiment, closing: contextlib.ExitStack | None) -> Session:
    if closing is not None:
        closing.callback(session.close)
    return whole_samples(session, experiment.dataset.interface, experiment.model)
