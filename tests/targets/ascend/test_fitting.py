import itertools

import numpy as np
import pytest

from workbench.targets.ascend.fitting import Shape, place, turns
from workbench.targets.ascend.interface import Port

BIAS = Port(name="bias", dtype="float32", shape=(1, "sequence", "batch"))
GRID = [Shape(batch=b, length=n) for b, n in itertools.product((1, 4, 8), (16, 64))]


def served(shapes: list[Shape], batch: int | None, length: int | None) -> list[tuple[int | None, int | None, int]]:
    found = turns(shapes, Shape(batch=batch, length=length))
    return [(turn.shape.batch, turn.shape.length, turn.stop - turn.start) for turn in found]


@pytest.mark.parametrize(
    ("batch", "length", "expected"),
    [
        (1, 1, [(1, 16, 1)]),
        (1, 17, [(1, 64, 1)]),
        (2, 16, [(4, 16, 2)]),
        (5, 64, [(8, 64, 5)]),
        (8, 16, [(8, 16, 8)]),
        (9, 16, [(8, 16, 8), (1, 16, 1)]),
        (19, 20, [(8, 64, 8), (8, 64, 8), (4, 64, 3)]),
    ],
)
def test_the_smallest_shape_that_holds_the_call_serves_it(
    batch: int, length: int, expected: list[tuple[int, int, int]]
) -> None:
    assert served(GRID, batch, length) == expected


def test_axes_may_stand_anywhere() -> None:
    room = np.full((1, 3, 3), 9, np.float32)

    place(np.array([[[1], [2]]], np.float32), room, BIAS)

    assert room.tolist() == [[[1, 1, 1], [2, 2, 2], [0, 0, 0]]]
