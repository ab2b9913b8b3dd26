"""Cards sampled once a second beside a load: by the target's own tool, or from the gauges of the server's /metrics."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workbench.load.server import Sampler, Samples, labels_of
from workbench.values.device_use import DeviceReading, DeviceUse, Reader, use_of
from workbench.values.errors import ToolchainError

_PROGRAM_TIMEOUT_S = 10.0
_GAUGES: Mapping[str, tuple[str, str, float]] = {
    "workbench_device_memory_used_bytes": ("device", "memory_bytes", 1.0),
    "workbench_device_power_watts": ("device", "power_w", 1.0),
    "workbench_device_utilization_ratio": ("device", "utilization_percent", 100.0),
    "workbench_device_temperature_celsius": ("device", "temperature_c", 1.0),
    "nv_gpu_memory_used_bytes": ("gpu_uuid", "memory_bytes", 1.0),
    "nv_gpu_power_usage": ("gpu_uuid", "power_w", 1.0),
    "nv_gpu_utilization": ("gpu_uuid", "utilization_percent", 100.0),
}
"""Gauge → (its label, what it tells, factor): our service's, and Triton's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReaders:
    """How cards of this machine are read.

    Attributes:
        readers: card → reader.
        source: the tool, in words.
    """

    readers: Mapping[str, Reader]
    source: str
    emulated: bool = False


class DeviceWatch(Sampler):
    def __init__(self, local: DeviceReaders | None, scraped: Callable[[], Samples | None]) -> None:
        super().__init__()
        self._local, self._scraped = local, scraped
        self._readings: dict[str, list[DeviceReading]] = defaultdict(list)
        self._source = local.source if local is not None else "gauges of /metrics"
        self._trouble: dict[str, str] = {}

    def end(self) -> tuple[DeviceUse, ...]:
        """What was seen, by card."""
        self.stop()
        emulated = self._local is not None and self._local.emulated
        return tuple(
            use_of(
                card,
                list(self._readings.get(card, ())),
                source=self._source,
                emulated=emulated,
                trouble=self._trouble.get(card, ""),
            )
            for card in sorted({*self._readings, *self._trouble})
        )

    def look(self) -> bool:
        if self._local is None:
            found = readings_in(self._scraped() or {})
            for card, reading in found.items():
                self._readings[card].append(reading)
            return bool(found)  # a server without such gauges is left alone
        for card, read in self._local.readers.items():
            try:
                self._readings[card].append(read())
            except ToolchainError as error:
                self._trouble[card] = str(error)
        return True


def readings_in(samples: Samples) -> dict[str, DeviceReading]:
    """Card → what the gauges of one scrape tell of it."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for gauge, (label, quantity, factor) in _GAUGES.items():
        for labels, value in samples.get(gauge, {}).items():
            card = labels_of(labels).get(label, "")
            values[card][quantity] = factor * value
    return {card: DeviceReading(**told) for card, told in values.items()}


def nvidia_readers() -> DeviceReaders | None:
    """The GPUs that `nvidia-smi` of this machine lists; None where it is missing or lists none.

    Another platform's server on this machine is read so; no target of ours computes there.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        names = [row[0] for row in _nvidia(program, "uuid")]
    except ToolchainError:
        return None
    return DeviceReaders(readers={name: _nvidia_reader(program, name) for name in names}, source="nvidia-smi")


def _nvidia_reader(program: str, uuid: str) -> Reader:
    def read() -> DeviceReading:
        rows = _nvidia(program, "memory.used,power.draw,utilization.gpu,temperature.gpu", uuid)
        if len(rows) != 1 or len(rows[0]) != 4:
            raise ToolchainError(f"nvidia-smi does not list {uuid}.")
        memory, power, utilization, temperature = map(_number, rows[0])
        return DeviceReading(
            memory_bytes=None if memory is None else memory * (1 << 20),  # MiB, as its manual says
            power_w=power,
            utilization_percent=utilization,
            temperature_c=temperature,
        )

    return read


def _nvidia(program: str, query: str, uuid: str = "") -> list[Sequence[str]]:
    command = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits", *([f"--id={uuid}"] if uuid else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"nvidia-smi: {error}") from error
    if done.returncode != 0:
        raise ToolchainError(f"nvidia-smi: {' '.join((done.stdout + done.stderr).split())[:300]}")
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def _number(text: str) -> float | None:
    """None for '[N/A]' and what is no number."""
    try:
        return float(text)
    except ValueError:
        return None
