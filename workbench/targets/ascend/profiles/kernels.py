"""What each kernel of a compiled model takes of one execution."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from workbench.targets.ascend.profiles.tasks import Tasks


def kernel_us(tasks: Tasks) -> Mapping[str, float]:
    """Operator → microseconds by which it moves the end of its execution, the median over executions.

    That is its duration and the start in front of it; what runs beside another counts as far as it lasts longer. Over
    all operators it adds up to the execution from the first one's start to the last one's end.
    """
    found: dict[int, list[int]] = defaultdict(list)
    reached: dict[int, int] = {}
    for task in np.flatnonzero(tasks.operator & (tasks.start >= 0) & (tasks.execution >= 0)):
        execution, start = int(tasks.execution[task]), int(tasks.start[task])
        end = start + int(tasks.duration[task])
        before = reached.get(execution, start)
        found[int(tasks.name[task])].append(max(0, end - before))
        reached[execution] = max(before, end)
    return {tasks.names[name]: statistics.median(each) / 1000 for name, each in found.items()}
