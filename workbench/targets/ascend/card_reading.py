"""One card looked at again and again through npu-smi: which one it is is found once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from workbench.targets.ascend.npu_smi import Card, logic_id, overview, parse_info, run_npu_smi
from workbench.targets.base import DeviceLoad
from workbench.values.device_use import DeviceReading, Reader, use_of
from workbench.values.errors import ToolchainError

INTERVAL_S = 1.0
_STOPPING_S = 5.0
_MIB = 1 << 20
"""npu-smi's MB: a card of 64 GiB shows 65536 (pyacl.md §6.1)."""


def reader_of(device: int, environment: Mapping[str, str] | None = None) -> Reader:
    """A reader of the card that a process with this environment calls `device`.

    It reads the table of `npu-smi info`; the mapping of logic ids costs a process of its own and is asked for once. It
    raises ToolchainError where npu-smi is missing, does not answer, fails, or does not list the card.
    """
    surroundings = dict(os.environ if environment is None else environment)
    wanted = logic_id(device, surroundings)
    found: Card | None = None

    def read() -> DeviceReading:
        nonlocal found
        if found is None:
            card = found = _card_of(overview(surroundings).cards, wanted)
        else:
            place = found.npu_id, found.chip
            cards = parse_info(run_npu_smi(["info"], environment=surroundings)).cards
            card = next((one for one in cards if (one.npu_id, one.chip) == place), None)
        if card is None:
            raise ToolchainError(f"npu-smi lists no card with logic id {wanted}")
        return DeviceReading(
            memory_bytes=None if card.hbm_used_mb is None else card.hbm_used_mb * _MIB,
            power_w=card.power_w,
            utilization_percent=card.aicore_percent,
            temperature_c=card.temperature_c,
            memory_total_bytes=None if card.hbm_total_mb is None else card.hbm_total_mb * _MIB,
        )

    return read


def _card_of(cards: Sequence[Card], wanted: int) -> Card | None:
    """By logic id; by place in the table where no logic ids are known."""
    if all(card.logic_id is None for card in cards):
        return cards[wanted] if wanted < len(cards) else None
    return next((card for card in cards if card.logic_id == wanted), None)


class CardWatch:
    """See `workbench.targets.base.DeviceWatch`; its numbers are npu-smi's, None where that gives none."""

    def __init__(self) -> None:
        self.readings: list[DeviceReading] = []

    def load(self) -> DeviceLoad:
        use = use_of("", tuple(self.readings), source="npu-smi")
        medians = [
            None if spread is None else spread.median
            for spread in (use.power_w, use.utilization_percent, use.temperature_c)
        ]
        return DeviceLoad(power_w=medians[0], utilization_percent=medians[1], temperature_c=medians[2])


@contextmanager
def watched(
    device: int, *, interval_s: float = INTERVAL_S, environment: Mapping[str, str] | None = None
) -> Iterator[CardWatch]:
    """Look at a card every `interval_s` in a thread of its own for as long as the block runs, which never fails because
    of this.

    Args:
        device: as the process counts it.
        environment: of npu-smi; this process's when not given.
    """
    watch, over = CardWatch(), threading.Event()
    read = reader_of(device, environment)

    def collect() -> None:
        while True:
            try:
                watch.readings.append(read())
            except ToolchainError:
                watch.readings.append(DeviceReading())
            if over.wait(interval_s):
                return

    thread = threading.Thread(target=collect, name="npu-smi sampler", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join(_STOPPING_S)  # a hanging npu-smi is left to its own time limit
