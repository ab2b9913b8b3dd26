"""What the event loop reads from its tables: linear between what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.prediction.simulation.machine_code import machine_code
from workbench.prediction.simulation.state import Setup


@machine_code
def drawn_time(setup: Setup, times: Sequence[float], place: int, rows: int, uniform: float) -> float:
    """Inverse transform: the time at a uniform number, linear between quantiles."""
    first = (place * setup.max_batch + rows - 1) * setup.quantiles
    if setup.quantiles == 1:
        return times[first]
    position = uniform * (setup.quantiles - 1)
    below = min(int(position), setup.quantiles - 2)
    low = times[first + below]
    return low + (position - below) * (times[first + below + 1] - low)


@machine_code
def slower_by(idle: Sequence[float], slower: Sequence[float], waited: float) -> float:
    """Linear between measured waits, and no more beyond the longest."""
    last = len(idle) - 1
    if waited >= idle[last]:
        return slower[last]
    place = 1
    while idle[place] <= waited:
        place += 1
    share = (waited - idle[place - 1]) / (idle[place] - idle[place - 1])
    return slower[place - 1] + share * (slower[place] - slower[place - 1])
