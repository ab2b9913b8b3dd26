"""Batches for one model without an experiment: an NPZ file, the calibration split of a manifest, or random values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.evaluation.carried import calibration_feeds
from workbench.graph.door import open_foreign
from workbench.graph.intake.fold import constants_of
from workbench.graph.intake.prepared import prepared
from workbench.graph.read import embedding_rows, load_graph
from workbench.inputs.dataset import check_inputs, read_interface, read_manifest
from workbench.inputs.dataset.arrays import read_arrays
from workbench.inputs.dataset.stored import load_array, npz_arrays
from workbench.quantization.observe import Feeds
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import NOTHING_DECLARED, Interface
from workbench.values.model import Model, TensorSpec

_USUAL_BATCHES = 2
"""Of a manifest's samples; where a model takes fewer in a call than was asked for, as many samples."""
_LABELS = "labels"
RANDOM_LENGTH = 32
"""Length of a symbolic axis other than the batch, where nobody gives data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelData:
    """Batches that can be read again and again, the same ones in the same order.

    Attributes:
        about: where they come from, for people.
        count: how many there are.
        usual: how many to calibrate with where nobody says: all that were written for it, two of a manifest's.
    """

    about: str
    count: int
    usual: int
    read: Callable[[], Iterator[Feeds]]

    def first(self, count: int) -> Callable[[], Iterable[Feeds]]:
        return lambda: itertools.islice(self.read(), count)


def open_data(path: Path, model: Model, *, batch: int, samples: int | None = None) -> ModelData:
    """Read and check an NPZ file, or the calibration split of a manifest, in batches of `batch`, or of the model's own
    where that is fixed.

    Args:
        samples: at most so many rows.

    An NPZ file is one of a dataset, with an array [samples, ...] for every input, or holds one array per batch:
    `arr_0`, `arr_1` … for a model with one input, or `NAME_0`, `NAME_1` … for every input.

    Raises:
        ConfigError: the file is missing or damaged, or does not fit the model.
    """
    usual, batch = _USUAL_BATCHES * batch, model.fixed_batch or batch
    if path.suffix not in (".yaml", ".yml"):
        return _open_npz(path, model, batch=batch, samples=samples)
    dataset = read_manifest(path, model)
    check_inputs(dataset, model)
    size = dataset.size("calibration")
    taken = _whole(size if samples is None else min(size, samples), model)
    return ModelData(
        about=f"{path.name}, calibration split",
        count=dataset.batch_count("calibration", batch, stop=taken),
        usual=dataset.batch_count("calibration", batch, stop=min(taken, usual)),
        read=lambda: calibration_feeds(dataset, model, batch=batch, samples=taken),
    )


def _whole(samples: int, model: Model) -> int:
    """So many samples that every batch is whole, where its size is fixed."""
    fixed = model.fixed_batch
    return samples if fixed is None else samples - samples % fixed


def opened_for(path: Path, data: Path | None, constants: Sequence[str] = ()) -> Model:
    """A user's model, prepared as a manifest among the data says, or as far as the file itself tells.

    Args:
        constants: inputs that are built in, as NAME=VALUE; instead of what the manifest says of them.

    Raises:
        ConfigError: it is no model, or only a manifest can say what is missing.
    """
    manifest = data if data is not None and data.suffix in (".yaml", ".yml") else None
    source, interface = declared_of(path, manifest, constants)
    return prepared(source, interface, declared_in=manifest)


def declared_of(path: Path, manifest: Path | None, constants: Sequence[str]) -> tuple[Model, Interface]:
    """A user's model as it is, and what is said of its inputs; constants instead of what the manifest says of them."""
    interface = NOTHING_DECLARED if manifest is None else read_interface(manifest)
    source = open_foreign(path)
    given = constants_of(constants, source)
    kept = (use for use in interface.inputs if use.name not in {use.name for use in given})
    return source, replace(interface, inputs=(*kept, *given))


def random_data(model: Model, *, batch: int, samples: int, seed: int = 0) -> ModelData:
    """Normal floats, token ids drawn from the whole vocabulary, ones for every other integer input.

    The last batch has what is left of the samples. Good enough to see where two models differ; no evidence about
    accuracy on real data.
    """
    rows = embedding_rows(load_graph(model))

    count = -(-samples // batch)

    def values(spec: TensorSpec, rng: np.random.Generator, size: int) -> npt.NDArray[Any]:
        lengths = (size, *[RANDOM_LENGTH] * (len(spec.shape) - 1))
        shape = tuple(d if isinstance(d, int) else n for d, n in zip(spec.shape, lengths, strict=False))
        if np.dtype(spec.dtype).kind == "f":
            return rng.standard_normal(shape).astype(spec.dtype)
        if spec.name in rows and rows[spec.name] > 2:  # two rows are token types, and those are usually all zero
            return rng.integers(0, rows[spec.name], shape).astype(spec.dtype)
        return (np.zeros if spec.name in rows else np.ones)(shape, spec.dtype)

    def read() -> Iterator[Feeds]:
        rng = np.random.default_rng(seed)
        for number in range(count):
            size = min(batch, samples - number * batch)
            yield {spec.name: values(spec, rng, size) for spec in model.inputs}

    return ModelData(about=f"random values, seed {seed}", count=count, usual=count, read=read)


def _open_npz(path: Path, model: Model, *, batch: int, samples: int | None) -> ModelData:
    stored = npz_arrays(path, texts=(_LABELS,))
    if all(spec.name in stored for spec in model.inputs):
        return _open_samples(path, model, batch=batch, samples=samples)
    names = list(stored)
    prefixes = {spec.name: spec for spec in model.inputs}
    single = model.inputs[0] if len(model.inputs) == 1 else None
    if single is not None and not any(name.startswith(f"{single.name}_") for name in names):
        prefixes = {"arr": single}
    found: dict[str, dict[int, str]] = {prefix: {} for prefix in prefixes}
    for name in names:
        match = re.fullmatch(r"(.+)_([0-9]{1,9})", name)
        if match is None or match[1] not in prefixes:
            wanted = ", ".join(f"{prefix}_0" for prefix in prefixes)
            inputs = ", ".join(spec.name for spec in model.inputs)
            raise ConfigError(
                f"array {name!r} is no batch of an input.",
                file=path,
                hint=f"Name arrays of samples by the inputs ({inputs}), or whole batches {wanted} and so on.",
            )
        found[match[1]][int(match[2])] = name
    count = max(map(len, found.values()))
    for prefix, numbers in found.items():
        if sorted(numbers) != list(range(count)) or count == 0:
            missing = next(i for i in range(count + 1) if i not in numbers)
            rule = f"array {prefix}_{missing} is missing; batches are numbered from 0 without a gap."
            raise ConfigError(rule, file=path)

    def read() -> Iterator[Feeds]:
        for number in range(count):
            yield {
                spec.name: _fitting(load_array(stored[found[prefix][number]]), spec, path, found[prefix][number])
                for prefix, spec in prefixes.items()
            }

    next(read())  # a wrong type or shape is the user's to know before any work
    return ModelData(about=path.name, count=count, usual=count, read=read)


def _open_samples(path: Path, model: Model, *, batch: int, samples: int | None) -> ModelData:
    """A dataset's file: `NAME` [samples, ...] for every input, `NAME.sizes` where samples differ, `labels` beside them
    where there are any. A batch ends where the size changes."""
    rows = read_arrays(path, label=_LABELS, classes=None, tags=False, truths=True)
    specs = {spec.name: spec for spec in model.inputs}
    for name, _ in rows.inputs:
        if name not in specs:
            raise ConfigError(f"array {name!r} is no input of the model.", file=path, hint=nearest(name, specs))
    taken = _whole(rows.size if samples is None else min(rows.size, samples), model)
    if not taken:
        raise ConfigError(f"has {rows.size} samples; the model takes {batch} a call.", file=path)
    groups = list(
        rows.sizing.runs((np.arange(at, min(at + batch, taken)) for at in range(0, taken, batch)), rows.shapes)
    )

    def read() -> Iterator[Feeds]:
        for found in rows.read(groups):
            yield {name: _fitting(array, specs[name], path, name) for name, array in found.feeds.items()}

    next(read())
    return ModelData(about=path.name, count=len(groups), usual=len(groups), read=read)


def _fitting(array: npt.NDArray[Any], spec: TensorSpec, path: Path, name: str) -> npt.NDArray[Any]:
    """The array as the input wants it; integers of another width are converted when no value changes."""
    converted = array
    if array.dtype != spec.dtype:
        converted = array.astype(spec.dtype)
        if array.dtype.kind != converted.dtype.kind or not np.array_equal(converted, array):
            raise ConfigError(f"array {name!r} is {array.dtype}, input {spec.name!r} takes {spec.dtype}.", file=path)
    if spec.shape and (
        len(spec.shape) != array.ndim
        or any(isinstance(d, int) and d != n for d, n in zip(spec.shape, array.shape, strict=True))
    ):
        raise ConfigError(
            f"array {name!r} has shape {array.shape}, input {spec.name!r} takes {spec.shape}.",
            file=path,
            hint="NAME holds samples, [samples, ...]; NAME_0, NAME_1 … are whole batches.",
        )
    return converted
