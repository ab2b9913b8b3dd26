"""Entities in BIO tags, counted per sentence.

The rules are seqeval's default mode, which are conlleval's: an entity begins at B-X, and at an I-X that does not
continue an X; it goes on over the I-X that follow. Two entities are equal when type, first and last word are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, IntArray
from workbench.inputs.metrics.outcomes import CORRECT, GOLD, PREDICTED

_OUTSIDE, _BEGIN, _INSIDE = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagSet:
    """What each tag id means.

    Attributes:
        types: entity types, sorted.
        prefix: [tags] O, B or I.
        kind: [tags] index into `types`, -1 for O.
    """

    types: tuple[str, ...]
    prefix: IntArray
    kind: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spans:
    """Entities of a run of words: type, first word, last word; each [entities]."""

    kind: IntArray
    first: IntArray
    last: IntArray

    def keys(self, words: int) -> IntArray:
        """One number per entity, equal exactly when type and both ends are."""
        return (self.kind * words + self.first) * words + self.last


def tag_set(tags: Sequence[str]) -> TagSet:
    """Split BIO tags; their order gives the ids."""
    types = sorted({tag[2:] for tag in tags if tag != "O"})
    prefixes = {"O": _OUTSIDE, "B": _BEGIN, "I": _INSIDE}
    return TagSet(
        types=tuple(types),
        prefix=np.array([prefixes[tag[0]] for tag in tags], dtype=np.int64),
        kind=np.array([types.index(tag[2:]) if tag != "O" else -1 for tag in tags], dtype=np.int64),
    )


def count_entities(tags: TagSet, predicted: IntArray, gold: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Counts per sentence over the positions that `gold` scores.

    Args:
        predicted, gold: tag ids [n, length]; where gold is NOT_SCORED neither is looked at.

    Returns:
        entities [n, types, 3] and tokens [n, 3], columns CORRECT, PREDICTED, GOLD; scored tokens [n].
    """
    sentences, scored = len(gold), gold != NOT_SCORED
    sentence = np.nonzero(scored)[0]
    flat_predicted, flat_gold = predicted[scored], gold[scored]
    words = len(sentence)

    found, wanted = _spans(tags, flat_predicted, sentence), _spans(tags, flat_gold, sentence)
    hits = np.isin(found.keys(words), wanted.keys(words))
    per_type = (sentences, len(tags.types))
    entities = np.empty((*per_type, 3), dtype=np.int64)
    entities[..., CORRECT] = _counts(per_type, sentence[found.first[hits]], found.kind[hits])
    entities[..., PREDICTED] = _counts(per_type, sentence[found.first], found.kind)
    entities[..., GOLD] = _counts(per_type, sentence[wanted.first], wanted.kind)

    inside_predicted, inside_gold = tags.prefix[flat_predicted] != _OUTSIDE, tags.prefix[flat_gold] != _OUTSIDE
    tokens = np.empty((sentences, 3), dtype=np.int64)
    tokens[:, CORRECT] = _counts((sentences,), sentence[inside_gold & (flat_predicted == flat_gold)])
    tokens[:, PREDICTED] = _counts((sentences,), sentence[inside_predicted])
    tokens[:, GOLD] = _counts((sentences,), sentence[inside_gold])
    return entities, tokens, _counts((sentences,), sentence)


def _counts(shape: tuple[int, ...], *index: IntArray) -> IntArray:
    """How often each cell of `shape` is named by the index arrays."""
    cells = math.prod(shape)
    if cells == 0:
        return np.zeros(shape, dtype=np.int64)
    return np.bincount(np.ravel_multi_index(index, shape), minlength=cells).astype(np.int64).reshape(shape)


def _spans(tags: TagSet, flat: IntArray, sentence: IntArray) -> _Spans:
    """Entities of consecutive sentences; none reaches over the end of its sentence."""
    prefix, kind = tags.prefix[flat], tags.kind[flat]
    joins = np.zeros(len(flat), dtype=np.bool_)  # an I- that goes on with the entity before it
    joins[1:] = (prefix[1:] == _INSIDE) & (kind[1:] == kind[:-1]) & (sentence[1:] == sentence[:-1])
    first = np.flatnonzero((prefix != _OUTSIDE) & ~joins)
    breaks = np.append(np.flatnonzero(~joins), len(flat))  # every word that begins something, O included
    last = breaks[np.searchsorted(breaks, first, side="right")] - 1
    return _Spans(kind=kind[first], first=first, last=last)
