"""A session's look at its own card while something is measured; see `workbench.targets.base.DeviceSession`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from workbench.targets.ascend.acl.sampling import Spread, Watch, sampled
from workbench.targets.base import DeviceLoad


class CardWatch:
    """See `workbench.targets.base.DeviceWatch`; its numbers are npu-smi's, None where that gives none."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def load(self) -> DeviceLoad:
        seen = self._watch.samples()
        return DeviceLoad(
            power_w=_median(seen.power_w),
            utilization_percent=_median(seen.aicore_percent),
            temperature_c=_median(seen.temperature_c),
        )


@contextmanager
def watched(device_id: int) -> Iterator[CardWatch]:
    """Sample a card while the block runs.

    Args:
        device_id: as pyACL counts inside this process.
    """
    with sampled(device_id) as watch:
        yield CardWatch(watch)


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median
