"""Sessions of a model whose batch is fixed, for any number of rows."""

from __future__ import annotations

import numpy as np

from workbench.targets.base import Array, Feeds, Session


def filled(feeds: Feeds, rows: int) -> Feeds:
    """A batch with its last row repeated until it has so many."""
    have = len(next(iter(feeds.values())))
    if have >= rows:
        return feeds
    return {n: np.concatenate([array, np.repeat(array[-1:], rows - have, axis=0)]) for n, array in feeds.items()}


def full_rows(session: Session, fixed: int | None) -> Session:
    """A session that takes any number of rows where the model takes `fixed` in every call; else the very same one.

    Rows go in groups, the last one filled up with its last row again. Closing it closes the one below.
    """
    return session if fixed is None or fixed < 2 else _FullRows(session, fixed)


class _FullRows:
    def __init__(self, session: Session, rows: int) -> None:
        self._session, self._rows = session, rows

    def run(self, feeds: Feeds) -> dict[str, Array]:
        rows = len(next(iter(feeds.values())))
        if rows == self._rows:
            return self._session.run(feeds)
        groups = []
        for start in range(0, rows, self._rows):
            part = {name: array[start : start + self._rows] for name, array in feeds.items()}
            have = min(self._rows, rows - start)
            outputs = self._session.run(filled(part, self._rows))
            # an output that does not count samples is given as it is
            groups.append({n: a[:have] if a.shape[:1] == (self._rows,) else a for n, a in outputs.items()})
        if len(groups) == 1:
            return groups[0]
        return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}

    def close(self) -> None:
        self._session.close()
