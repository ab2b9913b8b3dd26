"""What a card did while something was measured: power, load, memory, temperature, clock, from npu-smi.

    with sampled(device=0) as watch:
        …                            # measure
    print(watch.samples())

The measurement never fails because of this: what could not be read is None, with the reason.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from workbench.targets.ascend.card_reading import CardReader
from workbench.targets.ascend.npu_smi import Card, details, value_of
from workbench.values.errors import ToolchainError

INTERVAL_S = 1.0
_STOPPING_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A quantity over the time of the measurement."""

    median: float
    maximum: float
    minimum: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSamples:
    """What was seen; None for what was never seen, whose reason stands in `reasons`.

    Attributes:
        hbm_used_mb: of the whole card, other processes and the driver included.
        clock_mhz: of the AI cores; a maximum below the card's rated clock under load means that it was throttled.
        reasons: name of the missing quantity → why.
    """

    npu_id: int | None
    power_w: Spread | None
    aicore_percent: Spread | None
    hbm_used_mb: Spread | None
    temperature_c: Spread | None
    clock_mhz: Spread | None
    reasons: Mapping[str, str] = field(default_factory=dict)


_QUANTITIES = ("power_w", "aicore_percent", "hbm_used_mb", "temperature_c", "clock_mhz")


class Watch:
    """Collects while it runs; made by `sampled`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, list[float]] = {name: [] for name in _QUANTITIES}
        self._trouble = ""
        self._npu_id: int | None = None

    def add(self, npu_id: int, values: Mapping[str, float | None]) -> None:
        with self._lock:
            self._npu_id = npu_id
            for name, value in values.items():
                if value is not None:
                    self._values[name].append(value)

    def add_trouble(self, reason: str) -> None:
        with self._lock:
            self._trouble = reason

    def samples(self) -> DeviceSamples:
        """What was seen up to now."""
        with self._lock:
            spreads = {name: _spread(values) for name, values in self._values.items()}
            why = self._trouble or "npu-smi does not give it"
            if self._npu_id is None:
                why = self._trouble or "the measurement was over before npu-smi answered"
            return DeviceSamples(
                npu_id=self._npu_id,
                **spreads,
                reasons={name: why for name, spread in spreads.items() if spread is None},
            )


@contextmanager
def sampled(
    device: int = 0, *, interval_s: float = INTERVAL_S, environment: Mapping[str, str] | None = None
) -> Iterator[Watch]:
    """Sample a card every `interval_s` in a thread of its own for as long as the block runs.

    Args:
        device: as the process counts it; found on the machine by its logic id.
        environment: of npu-smi; this process's when not given.
    """
    surroundings = dict(os.environ if environment is None else environment)
    watch, over = Watch(), threading.Event()
    thread = threading.Thread(
        target=_collect, args=(watch, over, device, interval_s, surroundings), name="npu-smi sampler", daemon=True
    )
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join(_STOPPING_S)  # a hanging npu-smi is left to its own time limit


def _collect(
    watch: Watch, over: threading.Event, device: int, interval_s: float, environment: Mapping[str, str]
) -> None:
    reader = CardReader(device, environment)
    while True:
        try:
            card = reader.card()
            watch.add(card.npu_id, _of_card(card) | _of_details(card, environment, watch.add_trouble))
        except ToolchainError as error:
            watch.add_trouble(str(error))
        if over.wait(interval_s):
            return


def _of_card(card: Card) -> dict[str, float | None]:
    return {
        "power_w": card.power_w,
        "aicore_percent": card.aicore_percent,
        "hbm_used_mb": card.hbm_used_mb,
        "temperature_c": card.temperature_c,
    }


def _of_details(card: Card, environment: Mapping[str, str], trouble: Callable[[str], None]) -> dict[str, float | None]:
    """The clock, which the table of `npu-smi info` does not show."""
    try:
        return {"clock_mhz": value_of(details("common", card.npu_id, environment=environment), "Aicore curFreq(MHZ)")}
    except ToolchainError as error:
        trouble(str(error))
        return {}


def _spread(values: list[float]) -> Spread | None:
    if not values:
        return None
    return Spread(median=statistics.median(values), maximum=max(values), minimum=min(values), samples=len(values))
