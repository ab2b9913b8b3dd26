"""One card looked at again and again through npu-smi: which one it is is found once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from workbench.targets.ascend.npu_smi import Card, overview, parse_info, run_npu_smi
from workbench.targets.ascend.visible_devices import logic_id
from workbench.values.device_use import DeviceReading, Reader
from workbench.values.errors import ToolchainError

_MIB = 1 << 20
"""npu-smi's MB: a card of 64 GiB shows 65536 (pyacl.md §6.1)."""


class CardReader:
    """Reads the table of `npu-smi info`; the mapping of logic ids costs a process of its own and is asked for once."""

    def __init__(self, device: int, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._wanted = logic_id(device, environment)
        self._found: Card | None = None

    def card(self) -> Card:
        """The card now.

        Raises:
            ToolchainError: npu-smi is missing, does not answer, fails, or does not list the card.
        """
        if self._found is None:
            card = self._found = card_of(overview(self._environment).cards, self._wanted)
        else:
            found = self._found
            cards = parse_info(run_npu_smi(["info"], environment=self._environment)).cards
            card = next((one for one in cards if (one.npu_id, one.chip) == (found.npu_id, found.chip)), None)
        if card is None:
            raise ToolchainError(f"npu-smi lists no card with logic id {self._wanted}")
        return card


def card_of(cards: Sequence[Card], wanted: int) -> Card | None:
    """By logic id; by place in the table where no logic ids are known."""
    if all(card.logic_id is None for card in cards):
        return cards[wanted] if wanted < len(cards) else None
    return next((card for card in cards if card.logic_id == wanted), None)


def reader_of(device: int, environment: Mapping[str, str] | None = None) -> Reader:
    """A reader of the card that a process with this environment calls `device`."""
    surroundings = dict(os.environ if environment is None else environment)
    reader = CardReader(device, surroundings)

    def read() -> DeviceReading:
        card = reader.card()
        return DeviceReading(
            memory_bytes=None if card.hbm_used_mb is None else card.hbm_used_mb * _MIB,
            power_w=card.power_w,
            utilization_percent=card.aicore_percent,
            temperature_c=card.temperature_c,
            memory_total_bytes=None if card.hbm_total_mb is None else card.hbm_total_mb * _MIB,
        )

    return read
