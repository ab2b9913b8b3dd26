"""Rows in groups of a fixed batch."""

import numpy as np
import pytest

from workbench.targets.base import Array, Feeds
from workbench.targets.full_rows import full_rows


class OfFour:
    """Doubles x, four rows in every call."""

    def __init__(self) -> None:
        self.closed = False

    def run(self, feeds: Feeds) -> dict[str, Array]:
        assert feeds["x"].shape == (4, 3)
        return {"y": 2 * feeds["x"].astype(np.float32), "of_all": np.zeros(2, np.float32)}

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 11])
def test_any_number_of_rows_comes_back_in_order(rows: int) -> None:
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)

    outputs = full_rows(OfFour(), 4).run({"x": x})

    assert np.array_equal(outputs["y"], 2 * x)


def test_a_free_batch_leaves_the_session_alone_and_closing_reaches_it() -> None:
    session = OfFour()

    assert full_rows(session, None) is session
    assert full_rows(session, 1) is session
    full_rows(session, 4).close()
    assert session.closed
