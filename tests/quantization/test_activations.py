"""Which rows of an activation count in means and moments."""

import numpy as np

from workbench.quantization.activations import ordinary_rows


def test_tokens_of_massive_activations_are_left_out() -> None:
    values = np.random.default_rng(0).normal(size=(2, 10, 64)).astype(np.float32)
    values[0, 3, 7] = 200.0
    values[1, 0, 7] = -200.0

    rows = ordinary_rows(values)

    assert rows.shape == (18, 64)
    assert np.abs(rows).max() < 10
