"""Model outputs → outcomes, and how two models' outputs agree; entities in BIO tags, counted per sentence.

The rules of entities are seqeval's default mode, which are conlleval's: one begins at B-X, and at an I-X that does not
continue an X; it goes on over the I-X that follow. Two are equal when type, first and last word are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, BoolArray, IntArray, Task
from workbench.inputs.metrics.agreement.judge import cosines, flat, not_finite, per_position
from workbench.inputs.metrics.outcomes import (
    ClassificationOutcomes,
    FloatArray,
    NerOutcomes,
    Outcomes,
    concatenate,
)
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model

Outputs = Mapping[str, npt.NDArray[np.generic]]
"""Output name → array [n, ...]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """How a model's outputs compare with the float model's over a few samples.

    Attributes:
        cosine: [n] of the output where it is lowest; means nothing where `finite` is False.
        finite: [n] no output holds NaN or infinity.
        constant: all samples, two or more, have the same output, though the float model tells them apart.
        indices: [n] rows of the samples in their file.
    """

    cosine: FloatArray
    finite: BoolArray
    constant: bool
    indices: IntArray


class Scorer(ABC):
    """Per-sample outcomes of one batch after the other.

    Attributes:
        needs_reference: `score` wants the float model's outputs for the same samples.
        primary: name in `summarize` of what objectives and constraints call 'accuracy'.
        unit: of the primary metric; empty for a share of 0..1.
        higher: more of the primary metric is better.
        identity: what decides the numbers besides the data's own digest, as plain JSON; None where that says it all.
            It is part of every stored outcome's key.
    """

    __slots__ = ()

    @property
    def needs_reference(self) -> bool:
        return False

    @property
    @abstractmethod
    def primary(self) -> str: ...

    @property
    def unit(self) -> str:
        return ""

    @property
    def higher(self) -> bool:
        return True

    @property
    def identity(self) -> Mapping[str, object] | None:
        return None

    @abstractmethod
    def check(self, model: Model) -> None:
        """Compare what the model declares with what is scored, before any work.

        Raises:
            ConfigError: an output is missing or cannot be scored.
        """

    @abstractmethod
    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> Outcomes:
        """Outcomes of one batch, a row per sample.

        Raises:
            MeasureError: an output holds NaN, or has an impossible shape.
            ConfigError: the user's declaration does not fit what the model gives.
        """

    def score_all(self, runs: Iterable[tuple[Outputs, Batch, Outputs | None]]) -> Outcomes:
        """`score` of several batches, one or more, each with the reference's outputs."""
        return concatenate([self.score(*one) for one in runs])

    def close(self) -> None:  # noqa: B027  # nothing is started by a scorer that outlives it
        """May be called twice."""


def scored_output(names: Iterable[str]) -> str:
    """The output that holds the scores: the one named 'logits', or the only one."""
    found = tuple(names)
    if "logits" in found:
        return "logits"
    if len(found) != 1:
        scores, other = (*found, "NAME", "OTHER")[:2]
        raise ConfigError(
            f"the model has the outputs {', '.join(found)} and none is named 'logits'.",
            key="model",
            hint=f"Say what each is: `workbench init … --output {scores}=logits:against=labels --output "
            f"{other}=ignored` (`outputs:` in the manifest), or name the one that holds the scores 'logits'.",
        )
    return found[0]


def check_outputs(task: Task, labels: Sequence[str], model: Model) -> None:
    """Compare the outputs a model declares with the task, before any work."""
    if task == "tensors":
        return
    name = scored_output(spec.name for spec in model.outputs)
    shape = next(spec.shape for spec in model.outputs if spec.name == name)
    rank = 3 if task == "ner" else 2
    if not shape:
        return  # it declares none: the first answer shows it
    if len(shape) != rank:
        raise ConfigError(f"output {name!r} has {len(shape)} dimensions; {task} needs {rank}.", file=model.path)
    if labels and isinstance(shape[-1], int) and shape[-1] != len(labels):
        raise _label_count(name, shape[-1], len(labels))


def outcomes_of(
    task: Task, outputs: Outputs, batch: Batch, *, labels: Sequence[str] = ()
) -> ClassificationOutcomes | NerOutcomes:
    """Score one batch.

    Args:
        outputs: classification [n, classes], ner [n, length, classes].
        labels: names by index; needed for ner, whose tags they are.

    Raises:
        MeasureError: an output holds NaN (names the sample) or has an impossible shape.
        ConfigError: the number of classes is not that of the labels.
    """
    if batch.targets is None:
        raise ValueError(f"a batch without targets cannot be scored as {task}")
    if task == "ner" and not labels:
        raise ValueError("the task 'ner' is scored with the names of its tags")
    name = scored_output(outputs)
    logits, targets = outputs[name], batch.targets
    if logits.shape[:-1] != targets.shape:
        raise MeasureError(f"output {name!r} has the shape {logits.shape}; expected {(*targets.shape, 'classes')}.")
    classes = logits.shape[-1]
    if classes != (len(labels) or classes) or targets.max(initial=0) >= classes:
        raise _label_count(name, classes, len(labels) or int(targets.max()) + 1)
    nan = np.isnan(logits.astype(np.float64, copy=False)).reshape(len(batch), -1).any(axis=1)
    if nan.any():
        raise not_finite(name, "NaN", batch, int(nan.argmax()))
    predicted = logits.argmax(axis=-1).astype(np.int64)
    if task == "classification":
        return ClassificationOutcomes(predicted=predicted, target=targets)
    tags = tag_set(labels)
    entities, tokens = count_entities(tags, predicted, targets)
    return NerOutcomes(types=np.array(tags[0], dtype=np.str_), entities=entities, tokens=tokens)


def agreement(runs: Iterable[tuple[Outputs, Outputs, Batch]], apart: Collection[str] = ()) -> Agreement:
    """Compare outputs with the float model's over (outputs, float outputs, batch) of several batches, for any task.

    All batches are seen together: that a model answers the same to everything does not show on one sample.

    Args:
        apart: outputs that distance says nothing of, and that may differ in length; they must be finite all the same.

    Raises:
        MeasureError: the other outputs differ from the float model's in name or shape.
    """
    cosine, finite, indices = [], [], []
    seen: list[FloatArray] = []
    expected: list[FloatArray] = []
    for outputs, reference, batch in runs:
        rows = np.ones(len(batch), dtype=np.bool_)
        for array in outputs.values():
            rows &= np.isfinite(array.astype(np.float64)).reshape(len(batch), -1).all(axis=1)
        outputs, reference = ({n: a for n, a in of.items() if n not in apart} for of in (outputs, reference))
        ours, theirs = ({name: array.shape for name, array in of.items()} for of in (outputs, reference))
        if ours != theirs:
            raise MeasureError(f"the outputs are {ours}; the float model gives {theirs}.")
        safe = {
            name: np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0) for name, array in outputs.items()
        }
        each = [cosines(flat(array, batch), flat(reference[name], batch)) for name, array in safe.items()]
        cosine.append(np.min([np.ones(len(batch)), *each], axis=0))
        finite.append(rows)
        indices.append(batch.indices)
        if outputs:
            seen.append(_signatures(safe, batch))
            expected.append(_signatures(reference, batch))
    if not cosine:
        raise ValueError("no batches to compare")
    return Agreement(
        cosine=np.concatenate(cosine),
        finite=np.concatenate(finite),
        constant=bool(seen) and _all_alike(seen) and not _all_alike(expected),
        indices=np.concatenate(indices),
    )


def cut_alike(outputs: Outputs, batch: Batch, reference: Outputs, other: Batch) -> tuple[Outputs, Outputs, Batch]:
    """Outputs for the same texts padded to two lengths, both cut to the shorter one, and the batch with its mask.

    An axis in which the two differ is the length; nothing is cut where they were padded alike.

    Args:
        other: the batch that gave `reference`: the same rows.
    """
    if batch.valid is None or other.valid is None or batch.valid.shape == other.valid.shape:
        return outputs, reference, batch
    width = min(batch.valid.shape[1], other.valid.shape[1])
    ours, theirs = dict(outputs), dict(reference)
    for name in ours.keys() & theirs.keys():
        if ours[name].ndim == theirs[name].ndim:
            ours[name], theirs[name] = common_part(ours[name], theirs[name])
    return ours, theirs, replace(batch, valid=batch.valid[:, :width])


def common_part(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Two arrays whose sizes depend on the data, both cut to the smaller size along every axis.

    Raises:
        ValueError: they differ in their number of axes.
    """
    if a.shape == b.shape:
        return a, b
    if a.ndim != b.ndim:
        raise ValueError(f"shapes {a.shape} and {b.shape} differ in their number of axes")
    common = tuple(slice(min(sizes)) for sizes in zip(a.shape, b.shape, strict=True))
    return np.ascontiguousarray(a[common]), np.ascontiguousarray(b[common])


def _signatures(outputs: Outputs, batch: Batch) -> FloatArray:
    """[n, values] that do not depend on padding: positions are averaged, other outputs are taken as they are."""
    parts = []
    for array in outputs.values():
        values = flat(array, batch)
        if per_position(array, batch):
            summed = values.reshape(array.shape).sum(axis=1).reshape(len(batch), -1)
            values = summed / np.maximum(batch.lengths, 1)[:, None]
        parts.append(values)
    return np.concatenate(parts, axis=1)


def _all_alike(batches: Sequence[FloatArray]) -> bool:
    """Whether two samples or more, of batches [n, values], are all the same; a longer one is another one."""
    width = max(rows.shape[1] for rows in batches)
    rows = np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in batches])
    return len(rows) > 1 and bool(np.allclose(rows, rows[0], rtol=1e-6, atol=1e-9))


def _label_count(name: str, classes: int, labels: int) -> ConfigError:
    return ConfigError(
        f"the model's output {name!r} has {classes} classes, the dataset has {labels} labels.",
        key="labels",
        hint="Use the label file the model was trained with. Where labels are no classes: "
        f"outputs: {{{name}: {{meaning: values, against: labels}}}} (--output {name}=values:against=labels).",
    )


_OUTSIDE, _BEGIN, _INSIDE = 0, 1, 2
Tags = tuple[tuple[str, ...], IntArray, IntArray]
"""Entity types, sorted; of each tag id its prefix (O, B or I) [tags], and its index into the types [tags], -1 for O."""


def tag_set(tags: Sequence[str]) -> Tags:
    """Split BIO tags; their order gives the ids."""
    types = sorted({tag[2:] for tag in tags if tag != "O"})
    prefixes = {"O": _OUTSIDE, "B": _BEGIN, "I": _INSIDE}
    prefix = np.array([prefixes[tag[0]] for tag in tags], dtype=np.int64)
    kind = np.array([types.index(tag[2:]) if tag != "O" else -1 for tag in tags], dtype=np.int64)
    return tuple(types), prefix, kind


def count_entities(tags: Tags, predicted: IntArray, gold: IntArray) -> tuple[IntArray, IntArray]:
    """Counts per sentence over the positions that `gold` scores.

    Args:
        predicted, gold: tag ids [n, length]; where gold is NOT_SCORED neither is looked at.

    Returns:
        entities [n, types, 3] and tokens [n, 3], columns CORRECT, PREDICTED, GOLD.
    """
    types, prefix, kind = tags
    sentences, scored = len(gold), gold != NOT_SCORED
    sentence = np.nonzero(scored)[0]
    flat_predicted, flat_gold = predicted[scored], gold[scored]
    words = len(sentence)

    found, wanted = (_spans(prefix[ids], kind[ids], sentence) for ids in (flat_predicted, flat_gold))
    keys = [(kinds * words + firsts) * words + lasts for kinds, firsts, lasts in (found, wanted)]
    hits = np.isin(keys[0], keys[1])
    per_type = (sentences, len(types))
    spans = (found[0][hits], found[1][hits]), found[:2], wanted[:2]  # correct, predicted, gold
    entities = np.stack([_counts(per_type, sentence[firsts], kinds) for kinds, firsts in spans], axis=-1)
    inside_predicted, inside_gold = prefix[flat_predicted] != _OUTSIDE, prefix[flat_gold] != _OUTSIDE
    correct = inside_gold & (flat_predicted == flat_gold)
    chosen = correct, inside_predicted, inside_gold
    return entities, np.stack([_counts((sentences,), sentence[each]) for each in chosen], axis=-1)


def _counts(shape: tuple[int, ...], *index: IntArray) -> IntArray:
    """How often each cell of `shape` is named by the index arrays."""
    cells = math.prod(shape)
    if cells == 0:
        return np.zeros(shape, dtype=np.int64)
    return np.bincount(np.ravel_multi_index(index, shape), minlength=cells).astype(np.int64).reshape(shape)


def _spans(prefix: IntArray, kind: IntArray, sentence: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Type, first word and last word of each entity of consecutive sentences; none reaches over its sentence's end."""
    joins = np.zeros(len(prefix), dtype=np.bool_)  # an I- that goes on with the entity before it
    joins[1:] = (prefix[1:] == _INSIDE) & (kind[1:] == kind[:-1]) & (sentence[1:] == sentence[:-1])
    first = np.flatnonzero((prefix != _OUTSIDE) & ~joins)
    breaks = np.append(np.flatnonzero(~joins), len(prefix))  # every word that begins something, O included
    last = breaks[np.searchsorted(breaks, first, side="right")] - 1
    return kind[first], first, last
