"""Distances of outputs over samples: the definition, batch by batch, and what NaN, masks and padding do to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.inputs.meanings import batch_of
from workbench.inputs.dataset.batch import NOT_SCORED
from workbench.inputs.metrics.distances import Decisions, Distances, share

VALUES = arrays(np.float32, (6, 5), elements=st.floats(-100, 100, width=32))


@settings(max_examples=50, deadline=None)
@given(VALUES, VALUES, st.integers(1, 6))
def test_figures_are_those_of_their_definition_however_samples_are_batched(
    ours: np.ndarray, theirs: np.ndarray, size: int
) -> None:
    seen = Distances("y")
    for start in range(0, 6, size):
        rows = slice(start, start + size)
        seen.add(ours[rows], theirs[rows], batch_of(len(ours[rows])))
    found = seen.found()

    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    wanted = [float(x @ y) / n if n else float(np.array_equal(x, y)) for x, y, n in zip(a, b, norms, strict=True)]
    assert found.worst_cosine == pytest.approx(min(wanted), abs=1e-9)
    assert found.mean_cosine == pytest.approx(np.mean(wanted), abs=1e-9)
    assert found.max_abs == pytest.approx(np.abs(a - b).max())
    assert found.mae == pytest.approx(np.abs(a - b).mean())
    assert (found.samples, found.elements, found.not_finite) == (6, 30, 0)


def test_values_that_are_not_finite_are_counted_and_their_samples_agree_with_nothing() -> None:
    ours = np.array([[1.0, np.nan], [np.inf, 2.0]], np.float32)
    theirs = np.array([[1.0, 5.0], [np.inf, 2.5]], np.float32)
    seen, alone, decided = Distances("y"), Distances("y"), Decisions(("y",))

    seen.add(ours, theirs, batch_of(2))
    alone.add(np.full((3, 4), np.nan), np.zeros((3, 4)), batch_of(3))
    decided.add("y", np.array([[np.nan, 1.0]]), np.array([[0.0, 1.0]]), batch_of(1))

    found = seen.found()
    assert (found.not_finite, found.elements, found.max_abs, found.mae) == (2, 2, 0.5, 0.25)
    assert found.worst_cosine == found.mean_cosine == 0.0
    assert (alone.found().worst_cosine, alone.found().not_finite) == (0.0, 12)
    assert decided.found().value == 0.0


def test_positions_that_the_mask_hides_do_not_count() -> None:
    ours = np.ones((2, 3, 2), np.float32)
    theirs = ours.copy()
    theirs[0, 2], theirs[1, 1:] = 99.0, np.nan
    valid = np.array([[True, True, False], [True, False, False]])
    seen, decided = Distances("y"), Decisions(("y",))

    seen.add(ours, theirs, batch_of(2, valid=valid))
    decided.add("y", ours, theirs, batch_of(2, valid=valid))

    found, top = seen.found(), decided.found()
    assert (found.max_abs, found.not_finite, found.elements) == (0.0, 0, 6)
    assert found.worst_cosine == pytest.approx(1.0)
    assert top.value == 1.0


def test_tokens_without_a_label_are_no_decisions() -> None:
    ours, theirs = (np.eye(4, dtype=np.float32)[[order]] for order in ([0, 1, 2, 3], [0, 1, 3, 2]))
    decided = Decisions(("y",))

    targets = np.array([[NOT_SCORED, 1, 2, NOT_SCORED]])
    decided.add("y", ours, theirs, batch_of(1, targets=targets))

    assert decided.found().value == 0.5


def test_a_share_of_single_decisions_has_wilsons_interval_and_equal_tokens_prove_no_more_than_their_samples() -> None:
    found = share(np.array([1.0] * 90 + [0.0] * 10), np.ones(100))

    assert (found.low, found.high) == (pytest.approx(0.8256, abs=2e-4), pytest.approx(0.9448, abs=2e-4))
    assert share(np.full(10, 50.0), np.full(10, 50.0)).low == share(np.ones(10), np.ones(10)).low
