"""Samples: texts as tokens and rows of raw tensors, until they become the feeds of one batch; and outputs of a batch as
one answer for each row: classes, entities, or the arrays themselves.

Raw tensors of different sizes are padded to the bundle's bins as in calibration and scoring, and answers cut back.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

from workbench.bundle.golden import scored_output
from workbench.bundle.manifest import Manifest
from workbench.serve.batcher import Batch, Row
from workbench.serve.refusals import Refusal
from workbench.serve.requests import Text
from workbench.targets.base import Array
from workbench.values.errors import BundleError
from workbench.values.preprocess import WELL_KNOWN_INPUTS, Encoded, Preprocessor, collate, encoder


@dataclass(frozen=True, slots=True)
class TextSample:
    """One text and its tokens.

    Attributes:
        encoded: the same as `workbench.values.preprocess.encode` gives, which calibration and scoring used.
        encoding: the tokenizer's own result, for offsets and words.
    """

    text: Text
    encoded: Encoded
    encoding: Encoding
    raw: ClassVar[bool] = False

    @property
    def truncated(self) -> bool:
        """Tokens beyond max_length were cut off."""
        return bool(self.encoding.overflowing)

    @property
    def tokens(self) -> int:
        return len(self.encoded.ids)

    def span(self, first: int, last: int) -> tuple[int, int, str]:
        """Start, end and text of words `first` to `last`: characters of a plain text, words of a list of words."""
        tokens = self.words()
        if isinstance(self.text, str):
            offsets = self.encoding.offsets
            start, end = offsets[tokens[first][0]][0], offsets[tokens[last][1]][1]
            inside = self.text[start:end]  # some tokenizers count the space before a word to it
            start += len(inside) - len(inside.lstrip())
            end -= len(inside) - len(inside.rstrip())
            return start, end, self.text[start:end]
        ids = self.encoding.word_ids
        begin, until = ids[tokens[first][0]], ids[tokens[last][0]]
        assert begin is not None
        assert until is not None
        return begin, until + 1, " ".join(self.text[begin : until + 1])

    def words(self) -> list[tuple[int, int]]:
        """(first, last token) of each word that the tokens reach, in order."""
        found: list[tuple[int, int]] = []
        previous = None
        for position, word in enumerate(self.encoding.word_ids):
            if word is None:
                previous = None
            elif word == previous:
                found[-1] = (found[-1][0], position)
            else:
                found.append((position, position))
                previous = word
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySample:
    """Row `place` of arrays that are padded as they run: of raw tensors, or of texts that another process tokenized.

    Attributes:
        tokens: of its text, padding left out; 0 of raw tensors.
        sizes: of raw tensors, what padding added.
    """

    feeds: Mapping[str, Array]
    place: int
    raw: bool = True
    tokens: int = 0
    sizes: Sizes = field(default_factory=dict)


class Tokenizing:
    """Texts → samples, exactly as `workbench.values.preprocess.encode`; one tokenizer, kept at hand."""

    def __init__(self, preprocessor: Preprocessor) -> None:
        self._encode, self._bins = encoder(preprocessor), preprocessor.bins

    def sample(self, text: Text) -> TextSample:
        """Runs in the calling thread: the tokenizer holds the interpreter's lock, so another thread would not help."""
        return TextSample(text, *self._encode(text))

    def bin(self, sample: TextSample) -> int:
        return self._bins[bisect.bisect_left(self._bins, len(sample.encoded.ids))]


def rows_computed(rows: int, compiled: Sequence[int]) -> int:
    """Rows that a device computes for a batch when these batch sizes are compiled: it fills up the smallest that holds
    the batch, and takes turns of the largest where none does. Where nothing is fixed (`compiled` empty), the rows."""
    if not compiled:
        return rows
    whole, rest = divmod(rows, max(compiled))
    return whole * max(compiled) + (min(size for size in compiled if size >= rest) if rest else 0)


def batch_of(rows: list[Row], preprocessor: Preprocessor | None) -> Batch:
    """The feeds of rows with one key."""
    items = [row.item for row in rows]
    raw = items[0].raw
    if isinstance(items[0], TextSample):
        assert preprocessor is not None
        feeds = collate(preprocessor, [item.encoded for item in items])
    else:
        feeds = _joined(items)
    # of texts, and of raw tensors that are sequences of one length; else 0
    lengths = {array.shape[1] for array in feeds.values() if array.ndim == 2}
    length = lengths.pop() if len(lengths) == 1 else 0
    positions = len(rows) * length
    padded = 0 if raw else positions - sum(item.tokens for item in items)
    return Batch(rows=rows, feeds=feeds, length=length, positions=positions, padded=padded)


def _joined(items: Sequence[ArraySample]) -> dict[str, Array]:
    """Neighbours in the same arrays stay one piece."""
    together = itertools.groupby(enumerate(items), lambda one: (id(one[1].feeds), one[1].place - one[0]))
    pieces = [[item for _, item in piece] for _, piece in together]
    return {
        name: np.concatenate([piece[0].feeds[name][piece[0].place : piece[-1].place + 1] for piece in pieces])
        for name in items[0].feeds
    }


Sizes = Mapping[str, tuple[int, int]]
"""Padded axis → (the size that was sent, the size that runs)."""


class Padding:
    """What the manifest's `axes` ask for; without any it leaves every array as it is."""

    def __init__(self, manifest: Manifest) -> None:
        self._uses = {use.name: use for use in manifest.axes if use.bins}
        self._inputs = {spec.name: spec.shape for spec in manifest.model.inputs}
        self._outputs = {spec.name: spec.shape for spec in manifest.model.outputs}
        self._named = {axis for shape in self._inputs.values() for axis in shape[1:] if isinstance(axis, str)}

    def padded(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Sizes]:
        """(arrays [rows, ...] of the sizes that run, what was padded).

        Raises:
            Refusal: kind 'inputs': larger than the largest bin.
        """
        if not self._uses:
            return inputs, {}
        sent: dict[str, int] = {}
        for name, array in inputs.items():
            for axis, size in zip(self._inputs[name], array.shape, strict=True):
                if axis in self._uses:
                    sent[str(axis)] = max(size, sent.get(str(axis), 0))
        run, found = dict[str, int](), dict(inputs)
        for axis, size in sent.items():
            bins = self._uses[axis].bins
            if size > bins[-1]:
                raise Refusal("inputs", f"inputs may have at most {bins[-1]} along {axis}, not {size}.")
            run[axis] = bins[bisect.bisect_left(bins, size)]
        for name, array in inputs.items():
            axes = [str(axis) if axis in run else "" for axis in self._inputs[name]]
            shape = tuple(run.get(axis, size) for axis, size in zip(axes, array.shape, strict=True))
            if shape != array.shape:
                # whatever padding holds, a mask says that it is none of the data
                mask = WELL_KNOWN_INPUTS.get(name) == "mask"
                pad = 0.0 if mask else next(self._uses[axis].pad for axis in axes if axis)
                found[name] = np.full(shape, pad, dtype=array.dtype)
                found[name][tuple(slice(size) for size in array.shape)] = array
        return found, {axis: (size, run[axis]) for axis, size in sent.items() if run[axis] != size}

    def cut(self, name: str, array: Array, sizes: Sizes) -> Array:
        """An output [rows, ...] without what padding added.

        A free axis is one that was padded where it has that axis's name, or, since exporters give outputs names of
        their own, where it has the size that no other padded axis runs with.
        """
        shape = self._outputs.get(name, ())
        if not sizes or len(shape) != array.ndim:
            return array
        cuts = [slice(None)]
        for axis, size in zip(shape[1:], array.shape[1:], strict=True):
            ran = {name: sent for name, (sent, run) in sizes.items() if run == size and not isinstance(axis, int)}
            if axis in self._named:
                ran = {name: sent for name, sent in ran.items() if name == axis}
            cuts.append(slice(next(iter(ran.values())) if len(ran) == 1 else None))
        return array[tuple(cuts)]


Outputs = Mapping[str, Array]
Answer = dict[str, Any]
Answers = Callable[[Outputs, Sequence[TextSample]], list[Answer]]
"""(outputs of a batch, its samples) → an answer for each, in order; raises NotFinite."""

MOST_CLASSES = 5
"""Classes with scores in an answer, best first."""
_DIGITS = 6


class NotFinite(Exception):
    """An output holds NaN or infinity: no answer can be made of it."""


def answers_for(manifest: Manifest) -> Answers:
    """How the bundle's task answers texts; an answer is marked where tokens of its text were cut off.

    Raises:
        BundleError: an NER bundle without the names of its tags, or scores in no known output.
    """
    task, name, labels = manifest.task, "", tuple(manifest.labels)
    if task != "tensors":
        try:
            name = scored_output([spec.name for spec in manifest.model.outputs])
        except ValueError as error:
            raise BundleError(f"{manifest.name}: {error}.") from error
    if task == "ner" and not labels:
        raise BundleError(f"{manifest.name}: the bundle has no names of tags; entities cannot be named.")

    def answers(outputs: Outputs, samples: Sequence[TextSample]) -> list[Answer]:
        if task == "ner":
            found = entities(outputs[name], samples, labels)
        elif task != "tensors":
            found = classes(outputs[name], labels)
        else:
            whole = {name: finite(array[: len(samples)]).tolist() for name, array in outputs.items()}
            found = [{"outputs": {name: rows[row] for name, rows in whole.items()}} for row in range(len(samples))]
        for answer, sample in zip(found, samples, strict=True):
            if sample.truncated:
                answer["truncated"] = True
        return found

    return answers


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

    for number, (position, _) in enumerate(sample.words()):
        tag = tags[int(best[position])]
        if tag != "O" and tag[0] == "I" and tag[2:] == kind:
            last = number
            scores.append(float(value[position]))
            continue
        close()
        kind, first, last, scores = ("" if tag == "O" else tag[2:]), number, number, [float(value[position])]
    close()
    return found
