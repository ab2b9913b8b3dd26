"""Orders of documents and their quality, held against plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.inputs.metrics import ranking
from workbench.inputs.metrics.ranking import first_documents, flips, grades, quality, rank_agreement


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 9), st.integers(1, 12))
def test_the_first_documents_are_those_of_a_full_sort_whatever_the_blocks(seed, documents, block, k):
    rng = np.random.default_rng(seed)
    k = min(k, max(1, documents - 1))
    index = rng.integers(-2, 3, (documents, 3)).astype(np.float32)  # many equal scores
    queries = rng.integers(-2, 3, (4, 3)).astype(np.float32)
    left_out = np.array([-1, -1, 0, documents - 1]) if documents > k else np.full(4, -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_LEAST_BLOCK", block)
        patch.setattr(ranking, "_MOST_SCORES", 1)
        found = first_documents(queries, index, k, left_out)
    for query, own, rows in zip(queries, left_out, found, strict=True):
        scores = index @ query
        wanted = sorted((row for row in range(documents) if row != own), key=lambda row: (-scores[row], row))[:k]
        assert rows.tolist() == wanted


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 6))
def test_quality_is_a_share_and_one_of_the_ideal_order(seed, queries, k):
    rng = np.random.default_rng(seed)
    judged = []
    for _ in range(queries):
        rows = rng.permutation(12)[: rng.integers(1, 8)]
        judged.append(tuple(sorted(((int(row), float(rng.integers(1, 4))) for row in rows), key=lambda one: -one[1])))
    order = np.array([rng.permutation(12)[:k] for _ in range(queries)])
    for values in quality(*grades(order, judged)).values():
        assert ((values >= 0) & (values <= 1)).all()
    ideal = np.array([([row for row, _ in own] + [r for r in range(12) if r not in dict(own)])[:k] for own in judged])
    for values in quality(*grades(ideal, judged)).values():
        assert values == pytest.approx(1)


def test_quality_of_an_order_by_hand():
    gains, ideal = np.array([[0.0, 2.0, 1.0]]), np.array([[2.0, 1.0, 1.0]])
    found = quality(gains, ideal)
    assert found["recall"][0] == pytest.approx(2 / 3)
    assert found["mrr"][0] == 0.5
    ndcg = (2 / np.log2(3) + 1 / 2) / (2 + 1 / np.log2(3) + 1 / 2)
    assert found["ndcg"][0] == pytest.approx(ndcg)


def test_flips_and_rank_agreement_by_hand():
    assert flips(np.array([[1, 2, 3]]), np.array([[3, 4, 1]])).tolist() == pytest.approx([1 / 3])
    scores, reference = np.array([[3, 2, 1], [1, 2, 3], [5, 5, 5]]), np.array([[3, 2, 2], [3, 2, 1], [1, 1, 1]])
    agreed, counted = rank_agreement(scores.astype(np.float32), reference.astype(np.float32))
    assert agreed.tolist() == [1, -1, 0]
    assert counted.tolist() == [1, 1, 0]  # the reference tells nothing apart
