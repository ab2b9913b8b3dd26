"""Requests through all stages of a pipeline in this process: what each stage is asked and answers, and how good it is.

    with open_stage(experiment, candidate, bench) as stage: ...
    traces = run_pipeline(pipeline, {"detect": stage, …}, requests)
    outcomes = scored(pipeline, traces, "validation")

What a stage answers to an item is kept by the item's content, so pipelines that differ in a later stage share all that
comes before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.sizing import shapes_of, sizing_of
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.extents import Extents, own_parts
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, concatenate, measured
from workbench.inputs.metrics.user_scorer import UserScorer
from workbench.inputs.pipeline import Pipeline
from workbench.targets.base import Session
from workbench.user_code import UserCode, UserCodeError, process_of
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.interface import Interface
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.pipeline import (
    Item,
    ItemError,
    checked_answer,
    further_items,
    items_of,
    runs_once,
    taken,
    without_carried,
)

HANDED_OVER = "handed over"
MOST_KEPT_BYTES = 1 << 27
"""Of one model's answers; a recognizer's may have a megabyte each. What is not kept is computed again."""
REQUESTS_AT_ONCE = 16
"""Whose items and outputs are in memory together."""
_SCORED_AT_ONCE = 16
_ALIKE = 0.01
"""Of a number, or of the largest of its array."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """One request on its way.

    Attributes:
        items, outputs: stage → what it was asked and what it answered, one for each of its items.
        rounds: stage → how many items it had in each of its rounds.
        answer: of the whole.
        glue_ms: stage, or 'answer' → how long the user's code took; `HANDED_OVER` → what this process did of it all.
    """

    items: Mapping[str, list[Item]]
    outputs: Mapping[str, list[Item]]
    rounds: Mapping[str, list[int]]
    answer: Any
    glue_ms: Mapping[str, float]


@dataclass(slots=True, eq=False, kw_only=True)
class OpenStage:
    """A stage's model, opened.

    Attributes:
        file: where its sizes are declared, for errors.
        answers: what it has answered by the digest of an item, `kept_bytes` of it, up to MOST_KEPT_BYTES.
    """

    name: str
    model: Model
    interface: Interface
    file: Path
    batch: int
    session: Session
    answers: dict[bytes, Item] = field(default_factory=dict)
    kept_bytes: int = 0

    def run(self, items: Sequence[Item]) -> list[Item]:
        """Outputs of items, in their order and without their padding.

        Raises:
            ConfigError: an item is larger than the largest bin.
            MeasureError: the model failed, or gave a number that is not finite.
        """
        names = [_digest(item) for item in items]
        new = {name: item for name, item in zip(names, items, strict=True) if name not in self.answers}
        found: dict[bytes, Item] = {}
        sizing, groups = sizing_of(self.interface, self.model, self.file), dict[Any, list[bytes]]()
        for name, item in new.items():
            groups.setdefault(sizing.key(shapes_of(item)), []).append(name)
        extents = Extents(self.model, self.interface)
        for group in groups.values():
            for start in range(0, len(group), self.batch):
                chosen = group[start : start + self.batch]
                rows = np.arange(len(chosen))
                feeds, sizes = sizing.stacked([new[name] for name in chosen], rows, self.file)
                outputs = self.session.run(feeds)
                batch = Batch(feeds=feeds, targets=None, indices=rows, sizes=sizes)
                cut = [name for name, array in outputs.items() if array.ndim > 1] if extents.padded(batch) else []
                for row, name in enumerate(chosen):
                    parts = own_parts(outputs, cut, batch, row, extents)
                    if bad := [key for key, a in parts.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]:
                        raise MeasureError(f"{self.name}: output {bad[0]!r} holds NaN or infinity.")
                    found[name] = {key: part[0] for key, part in parts.items()}
                    size = sum(part.nbytes for part in parts.values())
                    if self.kept_bytes + size <= MOST_KEPT_BYTES:
                        self.answers[name], self.kept_bytes = found[name], self.kept_bytes + size
        return [found[name] if name in found else self.answers[name] for name in names]


def _digest(item: Item) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for name in sorted(item):
        array = np.ascontiguousarray(item[name])
        hasher.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        hasher.update(array.tobytes())
    return hasher.digest()


@contextlib.contextmanager
def open_stage(experiment: Experiment, candidate: Candidate, bench: Bench) -> Iterator[OpenStage]:
    """Compile (from the store where it is there) and open a candidate of a stage."""
    artifact, directory = artifact_of(experiment, candidate, bench)
    with contextlib.closing(bench.target(candidate).open(artifact, directory, candidate)) as session:
        yield OpenStage(
            name=experiment.name,
            model=experiment.model,
            interface=experiment.dataset.interface,
            file=experiment.dataset.path,
            batch=candidate.serving.batch,
            session=session,
        )


def call_glue(code: UserCode, arguments: Mapping[str, Any]) -> Any:
    """What the user's function returns.

    Raises:
        ConfigError: it raised, died, hung or returned what cannot be sent; names its file and line.
    """
    try:
        return process_of(code).call(arguments)
    except UserCodeError as error:
        words = {"import": "cannot be imported: {}.", "no function": "{}."}.get(error.kind)
        raise error.config(words or f"{code.function}() failed: {{}}.", key=code.key if words else None) from error


def _timed(code: UserCode | None, took_ms: dict[str, float], place: str, arguments: Mapping[str, Any]) -> Any:
    assert code is not None  # a wiring without glue calls none
    began, busy = time.perf_counter(), time.thread_time()
    found = call_glue(code, arguments)
    took = {place: time.perf_counter() - began, HANDED_OVER: time.thread_time() - busy}
    for name, seconds in took.items():
        took_ms[name] = took_ms.get(name, 0.0) + 1000 * seconds
    return found


def traces_of(pipeline: Pipeline, stages: Mapping[str, OpenStage], requests: Sequence[Item]) -> Iterator[Trace]:
    """`run_pipeline` of a few requests at a time, so that memory is bounded by what the caller keeps."""
    for start in range(0, len(requests), REQUESTS_AT_ONCE):
        yield from run_pipeline(pipeline, stages, requests[start : start + REQUESTS_AT_ONCE], start)


def run_pipeline(
    pipeline: Pipeline, stages: Mapping[str, OpenStage], requests: Sequence[Item], first: int = 0
) -> list[Trace]:
    """Each request through every stage; a stage runs the items of all requests together.

    Args:
        first: number of the first request, for errors.

    Raises:
        ConfigError: glue failed, or gave what is no item of its stage: the file's fault.
        MeasureError: a model failed.
    """
    items: list[dict[str, list[Item]]] = [{} for _ in requests]
    outputs: list[dict[str, list[Item]]] = [{} for _ in requests]
    rounds: list[dict[str, list[int]]] = [{} for _ in requests]
    glue_ms: list[dict[str, float]] = [{} for _ in requests]
    for stage in pipeline.stages:
        opened, specs = stages[stage.name], stages[stage.name].model.inputs
        going = list(range(len(requests)))
        while going:  # a round of all requests that are not done with the stage
            made: dict[int, list[Item]] = {}
            for place in going:
                known, ran = outputs[place], rounds[place].setdefault(stage.name, [])
                code = stage.again if ran else stage.code
                glue = partial(_timed, code, glue_ms[place], stage.name)
                try:
                    if ran:
                        made[place] = further_items(stage.wiring, specs, requests[place], known, ran[-1], glue)
                    else:
                        made[place] = items_of(stage.wiring, specs, requests[place], known, glue)
                except ItemError as error:
                    file = pipeline.path if code is None else code.file
                    raise ConfigError(
                        f"request {first + place}: {error}.", file=file, key=f"stages.{stage.name}"
                    ) from error
            flat = iter(opened.run([item for each in made.values() for item in each]))
            for place, each in made.items():
                items[place].setdefault(stage.name, []).extend(each)
                outputs[place].setdefault(stage.name, []).extend(itertools.islice(flat, len(each)))
                if each:
                    rounds[place][stage.name].append(len(each))
            going = [place for place, each in made.items() if each and stage.again is not None]
        for known in outputs:
            known[stage.name] = without_carried(stage.wiring, known[stage.name])
    answers = [_answer(pipeline, *each) for each in zip(requests, outputs, glue_ms, strict=True)]
    return [
        Trace(items=asked, outputs=gave, rounds=ran, answer=answer, glue_ms=took)
        for asked, gave, ran, answer, took in zip(items, outputs, rounds, answers, glue_ms, strict=True)
    ]


def _answer(pipeline: Pipeline, request: Item, outputs: Mapping[str, list[Item]], glue_ms: dict[str, float]) -> Any:
    if pipeline.answer is None:
        last = outputs[pipeline.stages[-1].name]
        return dict(last[0]) if runs_once(pipeline.wirings) else [dict(one) for one in last]
    code, takes = pipeline.answer
    found = _timed(code, glue_ms, "answer", taken(takes, request, outputs))
    try:
        return checked_answer(found, f"{code.function}()")
    except ItemError as error:
        raise ConfigError(f"{error}.", file=code.file, key="answer") from error


# --- how good the answers are --------------------------------------------------------------------------------------


def scored(pipeline: Pipeline, answers: Sequence[Any], reference: Sequence[Any], split: Split) -> MeasuredOutcomes:
    """What each answer is worth, by the manifest's metric; without one, whether it is the float pipeline's: texts and
    whole numbers exactly, others within a hundredth.

    Args:
        reference: of the float pipeline.
    """
    dataset = pipeline.dataset
    if dataset.metric is None:
        same = np.array([[float(_same(a, b))] for a, b in zip(answers, reference, strict=True)])
        return measured([("same_answer", "", True, (0.0, 1.0), "ratio")], (same, np.ones_like(same)))
    scorer, parts, start = UserScorer(dataset.metric, dataset), [], 0
    for batch in dataset.batches(split, _SCORED_AT_ONCE):
        end = start + len(batch)
        parts.append(scorer.answers(answers[start:end], batch, reference[start:end]))
        start = end
    return concatenate(parts)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    ours, theirs = np.asarray(a), np.asarray(b)
    if ours.dtype.kind == "f" and ours.shape == theirs.shape:
        return bool(np.allclose(ours, theirs, rtol=_ALIKE, atol=_ALIKE * float(np.abs(theirs).max(initial=0.0))))
    return bool(np.array_equal(ours, theirs))


def requests_of(dataset: Dataset, split: Split, most: int | None = None) -> list[Item]:
    """The requests of a split in its order, without a batch axis and without padding."""
    found: list[Item] = []
    for batch in dataset.batches(split, 1, stop=most):
        found.append({name: array[0] for name, array in batch.feeds.items()})
    return found
