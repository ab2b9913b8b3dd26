"""Which documents come first, and how good such an order is: pure functions over arrays.

Equal scores are ordered by the documents' rows, so that an order is the same however the documents are cut into blocks:
scores are summed in float64 and rounded to float32, beyond which the order of summation does not show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import IntArray
from workbench.inputs.dataset.retrieval import Judgements

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
"""[n, size]; of documents perhaps a file that is mapped."""

_MOST_SCORES = 1 << 22
"""Held at once, queries times documents of a block."""
_LEAST_BLOCK = 256


def first_documents(queries: Vectors, documents: Vectors, k: int, left_out: IntArray) -> IntArray:
    """Rows of the k documents with the largest scalar products with each query [n, k], the best first.

    Args:
        left_out: [n] row of the document that is the query itself; -1 where none is.
    """
    count = len(queries)
    best = np.full((count, k), -np.inf, dtype=np.float32)
    rows = np.zeros((count, k), dtype=np.int64)
    step = max(_LEAST_BLOCK, _MOST_SCORES // max(1, count))
    wide = queries.astype(np.float64)
    for start in range(0, len(documents), step):
        block = np.asarray(documents[start : start + step], dtype=np.float64)
        scores = (wide @ block.T).astype(np.float32)
        own = np.flatnonzero((left_out >= start) & (left_out < start + len(block)))
        scores[own, left_out[own] - start] = -np.inf
        both = np.concatenate([best, scores], axis=1)
        known = np.concatenate([rows, np.broadcast_to(np.arange(start, start + len(block)), scores.shape)], axis=1)
        order = _first(both, k)
        best, rows = np.take_along_axis(both, order, axis=1), np.take_along_axis(known, order, axis=1)
    return rows


def _first(scores: Vectors, k: int) -> IntArray:
    """[n, k] columns of the largest scores, the first of equal ones first."""
    least = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k]
    found = np.empty((len(scores), k), dtype=np.int64)
    for row, (values, bound) in enumerate(zip(scores, least, strict=True)):
        able = np.flatnonzero(values >= bound)
        found[row] = able[np.argsort(-values[able], kind="stable")[:k]]
    return found


def quality(gains: Floats, ideal: Floats) -> dict[str, Floats]:
    """Metrics of each query's first k documents, all [n].

    recall: relevant ones among them, of as many as k documents can hold; plain recall where a query has no more than k
    (capped recall: Thakur et al., BEIR, NeurIPS 2021 Datasets and Benchmarks, section 3.3).
    ndcg: Σ gain / log2(1 + rank), over that of the ideal order (Järvelin and Kekäläinen, ACM TOIS 20, 2002, 422-446).
    mrr: 1 / rank of the first relevant one, 0 where none is among them.

    Args:
        gains: [n, k] grade of the document at each rank, 0 of one that is not relevant.
        ideal: [n, k] the largest grades that the query's documents have, descending.
    """
    ranks = np.arange(1, gains.shape[1] + 1)
    discount = 1 / np.log2(1 + ranks)
    hits = gains > 0
    most = np.maximum(np.count_nonzero(ideal, axis=1), 1)
    best = (ideal * discount).sum(axis=1)
    return {
        "recall": hits.sum(axis=1) / most,
        # not above 1 by the rounding of two sums of the same terms
        "ndcg": np.minimum((gains * discount).sum(axis=1) / np.where(best == 0, 1.0, best), 1.0),
        "mrr": (hits / ranks).max(axis=1),
    }


def flips(ours: IntArray, theirs: IntArray) -> Floats:
    """[n] share of their first k documents [n, k] that are not among ours."""
    return np.array([1 - np.isin(wanted, found).mean() for found, wanted in zip(ours, theirs, strict=True)])


def rank_agreement(scores: Vectors, reference: Vectors) -> tuple[Floats, Floats]:
    """Somers' D of scores [n, k] given the reference's: pairs of documents in the same order less those in the other,
    over all pairs that the reference tells apart (Somers, American Sociological Review 27, 1962, 799-811).

    Returns:
        (D [n] in -1..1, 1 or 0 [n] where the reference tells no pair apart).
    """
    above, below = np.triu_indices(scores.shape[1], 1)
    found, told = np.zeros(len(scores)), np.zeros(len(scores))
    for query, (ours, theirs) in enumerate(zip(scores, reference, strict=True)):
        wanted = np.sign(theirs[above] - theirs[below])
        pairs = np.count_nonzero(wanted)
        found[query] = (np.sign(ours[above] - ours[below]) * wanted).sum() / max(pairs, 1)
        told[query] = pairs > 0
    return found, told


def grades(order: IntArray, judged: Sequence[Judgements]) -> tuple[Floats, Floats]:
    """(grade of each document in an order [n, k], the largest grades of each query), as `quality` takes them.

    Args:
        judged: of each query its documents with a grade, the best first.
    """
    gains, ideal = np.zeros(order.shape), np.zeros(order.shape)
    for query, (found, known) in enumerate(zip(order.tolist(), judged, strict=True)):
        given = dict(known)
        gains[query] = [given.get(row, 0.0) for row in found]
        best = [grade for _, grade in known[: order.shape[1]]]
        ideal[query, : len(best)] = best
    return gains, ideal
