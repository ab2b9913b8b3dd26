"""Models that carry a state: whole sequences through a session.

A model that carries a state takes one step in a call. Scored are whole sequences: `whole_samples` runs step after step,
from zeros or what the manifest declares, and stacks the outputs [n, steps, ...]. Calibrated and timed are single steps,
whose states are what the float model reached there: `calibration_feeds` and `timed_feeds`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.batch import STEPS
from workbench.inputs.experiment import Experiment
from workbench.quantization.sessions import named_outputs, open_session
from workbench.targets.base import Array, Feeds, Session, computes_in_float32
from workbench.targets.feeds import FileRows, FileSession, filled
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.interface import Interface
from workbench.values.measurement import Split
from workbench.values.model import Model, TensorSpec, axes_text

STEPS_TAKEN = 8
"""Steps of every sequence that calibration sees: neighbours in time say nearly the same."""
_TIMED_BATCHES = 8
"""Batches of sequences that timing draws its steps from: what a call takes does not depend on the values."""
_MOST_TIMED_STEPS, _MOST_TIMED = 256, 16
_timed: dict[tuple[str, str, int, int, int], list[Feeds]] = {}

Run = Callable[[Feeds], Mapping[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One value that is carried.

    Attributes:
        sizes: of one sample.
        initial: before the first step, as the manifest gives it; None for zeros.
    """

    output: str
    spec: TensorSpec
    sizes: tuple[int, ...]
    initial: Any = None

    def first(self, rows: int) -> npt.NDArray[Any]:
        """[rows, ...] before the first step."""
        made = np.zeros((rows, *self.sizes), dtype=self.spec.dtype)
        if self.initial is not None:
            made += np.asarray(self.initial).astype(self.spec.dtype)
        return made


def states_of(interface: Interface, model: Model) -> tuple[State, ...]:
    """What the manifest says is carried, held against the model.

    Raises:
        ConfigError: an output or input that the model lacks, or that cannot be carried: another type, another shape,
            or a size that nobody knows.
    """
    inputs, outputs = {s.name: s for s in model.inputs}, {s.name: s for s in model.outputs}
    initial = {use.name: use.initial for use in interface.inputs}
    found = []
    for output, name in interface.state:
        key = f"state.{output}"
        if output not in outputs:
            raise ConfigError(f"the model has no output {output!r}.", key=key, hint=nearest(output, outputs))
        if name not in inputs:
            raise ConfigError(f"the model has no input {name!r}.", key=key, hint=nearest(name, inputs))
        spec, given = inputs[name], outputs[output]
        if given.dtype != spec.dtype:
            raise ConfigError(f"{output!r} is {given.dtype}, {name!r} takes {spec.dtype}.", key=key)
        sizes = _sizes(spec, given, key)
        state = State(output=output, spec=spec, sizes=sizes, initial=initial.get(name))
        try:
            state.first(1)
        except ValueError as error:
            raise ConfigError(
                f"its initial value has the shape {list(np.shape(state.initial))}, one sample of it {list(sizes)}.",
                key=f"inputs.{name}.initial",
            ) from error
        found.append(state)
    return tuple(found)


def _sizes(spec: TensorSpec, given: TensorSpec, key: str) -> tuple[int, ...]:
    """Of one sample: where the input leaves a size free, what the output always has."""
    same = len(given.shape) == len(spec.shape)
    sizes = []
    for size, out in zip(spec.shape[1:], given.shape[1:] if same else [None] * len(spec.shape[1:]), strict=True):
        if isinstance(size, int) and isinstance(out, int) and size != out:
            raise ConfigError(
                f"{given.name!r} has the shape {axes_text(given.shape)}, {spec.name!r} {axes_text(spec.shape)}.",
                key=key,
            )
        known = size if isinstance(size, int) else out
        if not isinstance(known, int):
            raise ConfigError(
                f"input {spec.name!r} has the shape {axes_text(spec.shape)}: a state has the same size at every step.",
                key=key,
                hint=f"Write its sizes: inputs: {{{spec.name}: {{axes: [batch, SIZE, ...]}}}}; a cache that grows is "
                "exported with one size, written at a position that is fed.",
            )
        sizes.append(known)
    return tuple(sizes)


def whole_samples(session: Session, interface: Interface, model: Model) -> Session:
    """A session that takes batches as the dataset gives them; the very same one where nothing is in the way.

    Closing it closes the one below.
    """
    return _Carrying(session, states_of(interface, model)) if interface.state else session


def first_steps(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    """The batches with sequences of at most so many steps; as they are where nothing counts steps."""
    for batch in batches:
        if STEPS not in batch.sizes:
            yield batch
            continue
        sizes = {name: np.minimum(found, most) if name == STEPS else found for name, found in batch.sizes.items()}
        feeds = {name: array[:, :most] for name, array in batch.feeds.items()}
        valid = None if batch.valid is None else batch.valid[:, :most]
        yield replace(batch, feeds=feeds, sizes=sizes, valid=valid)


class _Carrying:
    """Runs [n, steps, ...] step after step."""

    def __init__(self, session: Session, states: Sequence[State]) -> None:
        self._session, self._states = session, states

    def run(self, feeds: Feeds) -> dict[str, Array]:
        found: dict[str, list[Array]] = {}
        for _, outputs in stepped(self._session.run, self._states, feeds):
            for name, array in outputs.items():
                found.setdefault(name, []).append(array)
        try:
            return {name: np.stack(arrays, axis=1) for name, arrays in found.items()}
        except ValueError as error:
            raise MeasureError(f"the outputs have another shape from step to step: {error}.") from error

    def close(self) -> None:
        self._session.close()


def stepped(run: Run, states: Sequence[State], feeds: Feeds) -> Iterator[tuple[Feeds, Mapping[str, Array]]]:
    """(what is fed in a step, what it gives) for every step of [n, steps, ...].

    Raises:
        MeasureError: a carried output has another shape than the input it becomes.
    """
    rows, steps = next(iter(feeds.values())).shape[:2]
    carried = {state.spec.name: state.first(rows) for state in states}
    for step in range(steps):
        fed: dict[str, Array] = {name: np.ascontiguousarray(array[:, step]) for name, array in feeds.items()}
        fed |= carried
        outputs = run(fed)
        yield fed, outputs
        for state in states:
            value = outputs[state.output]
            if value.shape != carried[state.spec.name].shape:
                raise MeasureError(
                    f"output {state.output!r} has the shape {value.shape}, input {state.spec.name!r}, which it becomes "
                    f"in the next step, {carried[state.spec.name].shape}."
                )
            carried[state.spec.name] = value.astype(state.spec.dtype, copy=False)


# --- single steps ---------------------------------------------------------------------------------------------------


def calibration_feeds(
    dataset: Dataset, model: Model, *, batch: int, samples: int, split: Split = "calibration"
) -> Iterator[Feeds]:
    """Batches that the model can be fed as they are: filled up to its fixed batch, single steps where it carries a
    state (up to `STEPS_TAKEN` of every sequence, drawn by the sample's row)."""
    fixed = model.fixed_batch
    if fixed is not None and samples > fixed:  # no sample is seen more often than the others
        samples -= samples % fixed
    batches = dataset.batches(split, fixed or batch, stop=samples)
    feeds = single_steps(dataset.interface, model, batches) if dataset.interface.state else (b.feeds for b in batches)
    for found in feeds:
        yield found if fixed is None else filled(found, fixed)


def single_steps(
    interface: Interface, model: Model, batches: Iterable[Batch], *, taken: int = STEPS_TAKEN, most: int | None = None
) -> Iterator[Feeds]:
    """Feeds of one step with the states that the float model reached there, as many rows as the batch has.

    Args:
        taken: steps of every sequence; fewer where it has fewer.
        most: only the first steps of a sequence are looked at.

    Raises:
        MeasureError: the float model fails.
    """
    states, run = states_of(interface, model), open_reference(model).run
    for batch in batches:
        lengths = list(zip(batch.indices.tolist(), batch.sizes[STEPS].tolist(), strict=True))
        chosen = [_drawn(row, steps, taken, most) for row, steps in lengths]
        last = max(steps[-1] for steps in chosen)
        found: list[list[Feeds]] = [[] for _ in chosen]
        feeds = {name: array[:, : last + 1] for name, array in batch.feeds.items()}
        for step, (fed, _) in enumerate(stepped(run, states, feeds)):
            for row, steps in enumerate(chosen):
                if step in steps:
                    found[row].append({name: array[row] for name, array in fed.items()})
        for place in range(max(map(len, found))):
            rows = [own[place] for own in found if place < len(own)]
            yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def timed_feeds(
    dataset: Dataset, model: Model, split: Split, *, count: int, batch: int, seed: int, length: int | None = None
) -> list[Feeds]:
    """`Dataset.sample_feeds` as the model can be fed: single steps where it carries a state."""
    if not dataset.interface.state:
        return dataset.sample_feeds(split, count, batch, seed=seed, length=length)
    if length is not None:
        raise ConfigError(f"a length of {length} can be asked of text only.", file=dataset.path)
    key = (model.sha256, dataset.digest(split), count, batch, seed)
    if (found := _timed.get(key)) is None:
        few, at = min(count, _TIMED_BATCHES), (dataset.interface, model)
        drawn = list(dataset.sample_batches(split, few, batch, seed=seed))
        steps = single_steps(*at, drawn, taken=-(-count // few), most=_MOST_TIMED_STEPS)
        found = [feeds for feeds in steps if len(next(iter(feeds.values()))) == batch]
        if not found:  # sequences of such different lengths that no step is drawn of all
            found = [filled(feeds, batch) for feeds in single_steps(*at, drawn, taken=1, most=1)]
        while len(_timed) >= _MOST_TIMED:
            del _timed[next(iter(_timed))]
        _timed[key] = found
    return [found[i % len(found)] for i in range(count)]


def _drawn(row: int, steps: int, taken: int, most: int | None) -> list[int]:
    within = steps if most is None else min(steps, most)
    if within <= taken:
        return list(range(within))
    return sorted(np.random.default_rng(row).choice(within, taken, replace=False).tolist())


# --- what accuracy is compared with: the float model in float32 ------------------------------------------------------

FLOAT32_ON_THE_HOST = "float32 in ONNX Runtime"
"""`Accuracy.reference` of such a comparison."""


def apart_from_baseline(experiment: Experiment) -> bool:
    """Whether the reference is something else than the float baseline."""
    return not computes_in_float32(experiment.baseline)


def reference_identity(model: Model) -> Mapping[str, str]:
    """What decides the reference's numbers, as part of a key. Threads do not: no sum is split between them."""
    return {"model": model.sha256, "engine": f"onnxruntime {version('onnxruntime')}", "computes": "float32"}


def open_reference(model: Model) -> Session:
    """The prepared float model on the host: any rows, any lengths, on as many threads as there are processors, which
    wait asleep so that they disturb no timing.

    Raises:
        CalibrationError: ONNX Runtime refuses the model.
    """
    session = open_session(model, (), threads=len(os.sched_getaffinity(0)))
    names = [output.name for output in session.get_outputs()]
    call = named_outputs(session, names, "the float32 model fails in ONNX Runtime")
    return FileSession(call, model.inputs, FileRows(model.inputs, model.outputs))
