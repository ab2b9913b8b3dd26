"""How much slower a call is after an idle wait: a worker of a service that has little to do meets such calls only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import numpy as np

from workbench.evaluation.measure import collection_paused
from workbench.targets.base import Feeds, Session
from workbench.values.measurement import AfterIdle

WAITS_MS = (1.0, 5.0, 20.0, 100.0)
REPEATS = 4
"""Of every wait, in turns: half a second in all, beside the calls."""


def slower_after_idle(
    session: Session, feeds: Sequence[Feeds], *, waits_ms: Sequence[float] = WAITS_MS, repeats: int = REPEATS
) -> tuple[AfterIdle, ...]:
    """Median calls after each wait, less the median of those that follow another call at once; 0 for a wait after which
    the median is not above all of those, which on a noisy machine is noise.

    What is added does not depend on the shape, as far as it comes from caches and processors that wake, so one shape
    tells it: the smallest, which shows it best. A longer wait counts as no less slow than a shorter one.

    Args:
        waits_ms: ascending.

    Raises:
        MeasureError: a call failed.
    """
    times: dict[float, list[float]] = {wait: [] for wait in (0.0, *waits_ms)}
    session.run(feeds[0])
    for number in range(repeats):
        with collection_paused():
            for place, (wait_ms, found) in enumerate(times.items()):
                session.run(feeds[place % len(feeds)])
                if wait_ms:
                    time.sleep(wait_ms / 1000)  # the wait that is asked about
                began = time.perf_counter()
                session.run(feeds[(number + place) % len(feeds)])
                found.append(1000 * (time.perf_counter() - began))
    at_once, *after = times.values()
    found_ms = [median(calls) for calls in after]
    slower = np.maximum.accumulate([one - median(at_once) if one > max(at_once) else 0.0 for one in found_ms])
    return tuple(AfterIdle(wait_ms=wait, slower_ms=float(by)) for wait, by in zip(waits_ms, slower, strict=True))
