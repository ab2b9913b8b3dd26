"""Release what was acquired, in reverse order, whatever fails on the way (pyacl.md §3.2)."""

from __future__ import annotations

from collections.abc import Callable

from workbench.values.errors import WorkbenchError


class UndoStack:
    """One entry for each thing acquired.

    `contextlib.ExitStack` reports the last failure of a release; the first one is the cause, so it is kept here.
    """

    def __init__(self) -> None:
        self._undos: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self._undos)

    def add(self, undo: Callable[[], object]) -> None:
        self._undos.append(undo)

    def release(self) -> WorkbenchError | None:
        """Run every entry, the last one first, each once; the first error is returned, and the others are dropped."""
        first: WorkbenchError | None = None
        try:
            while self._undos:
                try:
                    self._undos.pop()()
                except WorkbenchError as error:
                    first = first or error
        finally:
            if self._undos:  # something else than a vendor's refusal came through: the rest is released all the same
                self.release()
        return first
