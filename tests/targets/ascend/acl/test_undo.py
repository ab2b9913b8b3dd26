import pytest

from workbench.targets.ascend.acl.calls import UndoStack
from workbench.values.errors import MeasureError


def test_releases_in_reverse_order_and_once() -> None:
    order: list[int] = []
    undo = UndoStack()
    for number in range(3):
        undo.add(lambda number=number: order.append(number))

    assert undo.release() is None
    assert undo.release() is None
    assert order == [2, 1, 0]
    assert len(undo) == 0


def test_goes_on_after_a_failing_release_and_keeps_the_first_error() -> None:
    """pyacl.md §3.2: releasing must go on after one release fails; keep the first error."""
    order: list[str] = []

    def fail(words: str) -> None:
        order.append(words)
        raise MeasureError(words)

    undo = UndoStack()
    undo.add(lambda: order.append("last"))
    undo.add(lambda: fail("second"))
    undo.add(lambda: fail("first"))

    assert str(undo.release()) == "first"
    assert order == ["first", "second", "last"]


def test_a_programming_mistake_comes_through_after_the_rest_was_released() -> None:
    order: list[str] = []
    undo = UndoStack()
    undo.add(lambda: order.append("rest"))
    undo.add(lambda: [][1])

    with pytest.raises(IndexError):
        undo.release()
    assert order == ["rest"]
