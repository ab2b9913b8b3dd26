"""Outputs of a batch → one answer for each row: classes, entities, or the arrays themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.bundle import Manifest
from workbench.bundle.golden import scored_output
from workbench.serve.samples import TextSample
from workbench.targets.base import Array
from workbench.values.errors import BundleError

Outputs = Mapping[str, Array]
Answer = dict[str, Any]
Answers = Callable[[Outputs, Sequence[TextSample]], list[Answer]]
"""(outputs of a batch, its samples) → an answer for each, in order."""

MOST_CLASSES = 5
"""Classes with scores in an answer, best first."""
_DIGITS = 6


class NotFinite(Exception):
    """An output holds NaN or infinity: no answer can be made of it."""


def answers_for(manifest: Manifest) -> Answers:
    """How the bundle's task answers a text.

    Raises:
        BundleError: an NER bundle without the names of its tags, or scores in no known output.
    """
    if manifest.task == "tensors":
        return lambda outputs, samples: [
            {"outputs": {name: finite(array[row]).tolist() for name, array in outputs.items()}}
            for row in range(len(samples))
        ]
    try:
        name = scored_output([spec.name for spec in manifest.model.outputs])
    except ValueError as error:
        raise BundleError(f"{manifest.name}: {error}.") from error
    if manifest.task == "ner":
        if not manifest.labels:
            raise BundleError(f"{manifest.name}: the bundle has no names of tags; entities cannot be named.")
        tags = tuple(manifest.labels)
        return lambda outputs, samples: entities(outputs[name], samples, tags)
    labels = tuple(manifest.labels)
    return lambda outputs, samples: classes(outputs[name], labels)


def texts_answered(answers: Answers, outputs: Outputs, samples: Sequence[TextSample]) -> list[Answer]:
    """An answer for each text, marked where tokens of it were cut off.

    Raises:
        NotFinite: an output holds NaN or infinity.
    """
    found = answers(outputs, samples)
    for answer, sample in zip(found, samples, strict=True):
        if sample.truncated:
            answer["truncated"] = True
    return found


def without_rows(outputs: Outputs, rows: int) -> list[str]:
    """Outputs that do not have one row for each sample, so that no answer can be made of them."""
    return [name for name, array in outputs.items() if not array.ndim or len(array) != rows]


def classes(logits: Array, labels: Sequence[str]) -> list[Answer]:
    """Softmax scores of [rows, classes] logits; a class without a name is called by its number."""
    scores = softmax(logits)
    count = min(MOST_CLASSES, scores.shape[-1])
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    answers = []
    for row, order in zip(np.take_along_axis(scores, best, axis=-1).tolist(), best.tolist(), strict=True):
        named = {labels[i] if labels else str(i): round(score, _DIGITS) for i, score in zip(order, row, strict=True)}
        label, score = next(iter(named.items()))
        answers.append({"label": label, "score": score, "scores": named})
    return answers


def entities(logits: Array, samples: Sequence[TextSample], tags: Sequence[str]) -> list[Answer]:
    """Entities of [rows, length, tags] logits. A word's first token decides for the word, as in training and scoring.

    BIO tags by the rules of `workbench.inputs.metrics.score`. An entity's score is the mean of its words'.
    """
    scores = softmax(logits)
    best = scores.argmax(axis=-1)
    value = np.take_along_axis(scores, best[..., None], axis=-1)[..., 0]
    return [{"entities": _entities_of(sample, best[row], value[row], tags)} for row, sample in enumerate(samples)]


def softmax(logits: Array) -> npt.NDArray[np.float64]:
    """Over the last axis, in float64.

    Raises:
        NotFinite: a logit is NaN or infinite.
    """
    wide = finite(logits).astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    np.exp(wide, out=wide)
    wide /= wide.sum(axis=-1, keepdims=True)
    return wide


def finite(array: Array) -> Array:
    """The array itself.

    Raises:
        NotFinite: it holds NaN or infinity.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFinite
    return array


def _entities_of(
    sample: TextSample, best: npt.NDArray[np.int64], value: npt.NDArray[np.float64], tags: Sequence[str]
) -> list[Answer]:
    found: list[Answer] = []
    kind, first, last, scores = "", 0, 0, [0.0]

    def close() -> None:
        if kind:
            start, end, text = sample.span(first, last)
            score = round(sum(scores) / len(scores), _DIGITS)
            found.append({"type": kind, "start": start, "end": end, "text": text, "score": score})

    words = sample.words()
    for number, position in enumerate(words):
        tag = tags[int(best[position])]
        if tag != "O" and tag[0] == "I" and tag[2:] == kind:
            last = number
            scores.append(float(value[position]))
            continue
        close()
        kind, first, last, scores = ("" if tag == "O" else tag[2:]), number, number, [float(value[position])]
    close()
    return found
