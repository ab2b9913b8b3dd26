"""When a service without a worker stops trying: as pure rules over times of one monotonic clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_MOST_DOUBLINGS = 10
_LATE_S = 0.05
"""A timer of the event loop may be early by its own grain; the last try must find the limit behind it."""
_TIMES_THE_SLOWEST = 3.0


@dataclass(slots=True)
class Outage:
    """No worker is ready, and starting one failed or the last one was lost.

    Attributes:
        limit_s: how long it may last.
        since_s: when it began; None while there is none.
    """

    limit_s: float
    since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Nothing where it has begun already."""
        if self.since_s is None:
            self.since_s = now_s

    def end(self) -> None:
        self.since_s = None

    def lasts_s(self, now_s: float) -> float:
        return 0.0 if self.since_s is None else now_s - self.since_s

    def is_over_limit(self, now_s: float) -> bool:
        return self.since_s is not None and now_s - self.since_s >= self.limit_s

    def pause_s(self, failed_starts: int, now_s: float) -> float:
        """Before the next try; the last one of an outage is made at its limit, so that the service ends then."""
        pause = pause_s(failed_starts)
        if self.since_s is None or self.is_over_limit(now_s):
            return pause
        return min(pause, self.since_s + self.limit_s - now_s + _LATE_S)


def pause_s(failed_starts: int) -> float:
    """Before a worker is started again that failed to start so many times in a row: doubling, to ten seconds."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(failed_starts, _MOST_DOUBLINGS), _LONGEST_PAUSE_S))


def longest_start_s(slowest_s: float | None, *, first_s: float, limit_s: float) -> float:
    """How long one start may take before it counts as hanging.

    Args:
        slowest_s: the slowest that ended well; None before there was one.
        first_s: for a start of which nothing is known.
        limit_s: of an outage; no start gets less.
    """
    return max(limit_s, first_s if slowest_s is None else _TIMES_THE_SLOWEST * slowest_s)
