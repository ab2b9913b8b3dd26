"""Which rows go into the next batch: one queue for each length bin, and no clock of its own.

The policy is `bins` of `workbench.values.service`: a free worker takes the bin whose oldest row is the oldest of all
bins that are ready; a bin is ready when it is full, when its oldest row has waited long enough, or when the service
drains.
`workbench.prediction.simulation` simulates exactly this.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.serve.refusals import Refusal
from workbench.targets.base import Array


class Alone:
    """A key that nothing else has."""


@dataclass(slots=True, eq=False, kw_only=True)
class Row:
    """One sample that waits for a batch or is in one.

    Attributes:
        key: rows of one key may share a batch: the length bin, or the shapes of raw tensors.
        item: what the batch is made from; `workbench.serve.samples` knows.
        asker: who is told what becomes of it (see `workbench.serve.dispatch`).
        owner: the request it belongs to, `index` its place there.
        arrived_s: by `time.perf_counter`.
        number: what it is called between processes.
        attempts: batches it was in that did not come back.
        company: rows of the last batch it was in, itself among them.
        waiting: in a queue now.
        dropped: nobody waits for it any more.
    """

    key: Hashable
    item: Any
    asker: Any
    arrived_s: float
    owner: Any = None
    index: int = 0
    number: int = -1
    attempts: int = 0
    company: int = 0
    waiting: bool = False
    dropped: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """Rows that one worker runs together.

    Attributes:
        length: their bin, 0 where samples are not sequences.
        positions, padded: rows times length, and how much of that is padding.
        started_s: by `time.perf_counter`.
    """

    rows: list[Row]
    feeds: Mapping[str, Array]
    length: int
    positions: int
    padded: int
    started_s: float = 0.0


@dataclass(slots=True)
class _Bin:
    """Rows in order of arrival; those that left early stay in `rows` until they reach its head, but do not count."""

    rows: deque[Row] = field(default_factory=deque)
    count: int = 0

    def oldest(self) -> Row:
        while not self.rows[0].waiting:
            self.rows.popleft()
        return self.rows[0]

    def pop(self) -> Row:
        row = self.oldest()
        self.rows.popleft()
        row.waiting = False
        self.count -= 1
        return row


class Batcher:
    """Waiting rows by bin, `depth` of them. Not thread-safe; every method takes the time of now from its caller."""

    def __init__(self, *, max_batch_size: int, batch_timeout_s: float, limit: int) -> None:
        self.draining = False
        self._size, self._timeout_s, self._limit = max_batch_size, batch_timeout_s, limit
        self._bins: dict[Hashable, _Bin] = {}
        self.depth = 0

    def add(self, rows: Sequence[Row]) -> bool:
        """Queue all of a request's rows, or none where the limit would be exceeded; whether it did."""
        if self.depth + len(rows) > self._limit:
            return False
        for row in rows:
            self._queued(row).append(row)
        return True

    def put_back(self, rows: Iterable[Row]) -> None:
        """Queue rows of a batch that did not come back, before all others of their bin; the limit does not apply."""
        for row in reversed(list(rows)):
            self._queued(row).appendleft(row)

    def _queued(self, row: Row) -> deque[Row]:
        found = self._bins.get(row.key)
        if found is None:
            found = self._bins[row.key] = _Bin()
        found.count += 1
        self.depth += 1
        row.waiting = True
        return found.rows

    def take(self, now_s: float) -> list[Row] | None:
        """The rows of the next batch, None when no bin is ready."""
        best: Hashable = None
        oldest_s = float("inf")
        for key, found in self._bins.items():
            arrived_s = found.oldest().arrived_s
            # the sum and not the difference: it is what `ready_at` says, to the last bit
            ready = self.draining or found.count >= self._size or arrived_s + self._timeout_s <= now_s
            if ready and arrived_s < oldest_s:
                best, oldest_s = key, arrived_s
        if oldest_s == float("inf"):
            return None
        chosen = self._bins[best]
        rows = [chosen.pop() for _ in range(min(self._size, chosen.count))]
        self.depth -= len(rows)
        if not chosen.count:
            del self._bins[best]
        return rows

    def ready_at(self) -> float | None:
        """When the first bin that holds anything is ready for lack of company; None when nothing waits."""
        waits = [found.oldest().arrived_s + self._timeout_s for found in self._bins.values()]
        return min(waits, default=None)

    def discard(self, rows: Iterable[Row]) -> None:
        """Forget rows that nobody waits for any more, those among them that wait here."""
        for row in rows:
            row.dropped = True
            if row.waiting:
                row.waiting = False
                self.depth -= 1
                found = self._bins[row.key]
                found.count -= 1
                if not found.count:
                    del self._bins[row.key]


def by_asker(rows: Sequence[Row]) -> dict[Any, list[int]]:
    """Places of the rows that are still wanted."""
    found: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        if not row.dropped:
            found.setdefault(row.asker, []).append(place)
    return found


def fail(rows: Sequence[Row], refusal: Refusal) -> None:
    for asker, places in by_asker(rows).items():
        asker.failed([rows[place] for place in places], refusal)


def to_run_alone(rows: Sequence[Row], refusal: Refusal) -> list[Row]:
    """One of these may have spoilt a batch for the others: those to be queued again, each for a batch of its own; what
    was alone before fails."""
    fail([row for row in rows if row.company == 1], refusal)
    again = [row for row in rows if row.company > 1 and not row.dropped]
    for row in again:
        row.key = Alone()
    return again


def whole_ms(wait_s: float) -> float:
    """A wait as a timer's delay in seconds: at least one millisecond, and rounded up to a whole one.

    uvloop's timers count milliseconds and round to the nearest, so that a wait of 2.3 ms would end early and start
    again; its clock is cut to milliseconds as well, so that `time.perf_counter` says who has waited long enough.
    """
    return max(1, math.ceil(wait_s * 1000)) / 1000
