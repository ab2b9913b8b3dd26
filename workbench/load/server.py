"""The server seen from beside the load: its /metrics before and after, its processes and cards once a second; cards by
the target's own tool, or from the gauges of the server's /metrics.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import psutil

from workbench.load.http1 import exchange
from workbench.load.result import ServerFigures, ServerProcesses
from workbench.values.device_use import DeviceReading, DeviceUse, Reader, use_of
from workbench.values.errors import ToolchainError

Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]
"""Name of a sample → its labels → value."""
_SAMPLE_S = 1.0
_STOPPING_S = 5.0
_TREE_EVERY = 5
"""Samples between two looks at which processes belong to the server: listing them all costs more than one sample."""


def scrape(host: str, port: int, api_key: str | None = None, timeout_s: float = 5.0) -> Samples | None:
    """The samples of GET /metrics; None where the server has none."""
    url, headers = f"http://{f'[{host}]' if ':' in host else host}:{port}", {"X-API-Key": api_key} if api_key else {}
    try:
        status, _, content = exchange(url, "GET", "/metrics", None, headers, timeout_s)
    except OSError:
        return None
    return read_samples(content.decode("utf-8", "replace")) if status == 200 else None


def read_samples(text: str) -> Samples:
    """Samples of Prometheus' text format; none of what is no such text."""
    from prometheus_client.parser import text_string_to_metric_families  # the clients need it not

    found: dict[str, dict[Labels, float]] = defaultdict(dict)
    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


def figures_between(before: Samples | None, after: Samples | None, seconds: float) -> ServerFigures | None:
    """What happened between two scrapes of one server; None unless both are from our service.

    A server that was started anew between them (its counters fell) gives None as well.
    """
    if before is None or after is None or "workbench_batch_rows_count" not in after:
        return None

    def gained(name: str) -> float:
        return sum(after.get(name, {}).values()) - sum(before.get(name, {}).values())

    def by_label(name: str, label: str) -> dict[str, int]:
        grown = {}
        for labels, value in after.get(name, {}).items():
            number = round(value - before.get(name, {}).get(labels, 0.0))
            if number:
                grown[dict(labels).get(label, "")] = number
        return grown

    batches = gained("workbench_batch_rows_count")
    if batches < 0:
        return None

    def mean(name: str, factor: float = 1.0) -> float | None:
        count = gained(f"{name}_count")
        return gained(f"{name}_sum") / count * factor if count else None

    positions = gained("workbench_positions_total")
    workers = sum(after.get("workbench_workers_alive", {}).values())
    device = after.get("workbench_worker_device_memory_bytes")
    return ServerFigures(
        batches=round(batches),
        mean_batch=mean("workbench_batch_rows"),
        padding_share=gained("workbench_padded_positions_total") / positions if positions else None,
        queue_ms=mean("workbench_queue_duration_seconds", 1000),
        model_ms=mean("workbench_model_duration_seconds", 1000),
        worker_busy=gained("workbench_worker_busy_seconds_total") / seconds / workers if workers else None,
        batch_rows=_single_buckets(by_label("workbench_batch_rows_bucket", "le")),
        bin_rows=by_label("workbench_bin_rows_total", "length"),
        errors=by_label("workbench_errors_total", "kind"),
        device_memory_bytes=round(sum(device.values())) if device else None,
    )


def _single_buckets(cumulated: Mapping[str, int]) -> dict[str, int]:
    """Counts of each bucket from Prometheus' cumulated ones, empty ones left out."""
    found, last = {}, 0
    for bound in sorted(cumulated, key=float):
        if cumulated[bound] > last:
            found[f"{float(bound):g}" if bound != "+Inf" else bound] = cumulated[bound] - last
        last = cumulated[bound]
    return found


def listener(port: int) -> int | None:
    """Process id of who listens on a port of this machine; None where the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    pids = [c.pid for c in connections if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid]
    return min(pids, default=None)


_GAUGES: Mapping[str, tuple[str, float]] = {
    "nv_gpu_memory_used_bytes": ("memory_bytes", 1.0),
    "nv_gpu_power_usage": ("power_w", 1.0),
    "nv_gpu_utilization": ("utilization_percent", 100.0),
}
"""Triton's gauge of a card → (what it tells, factor)."""


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


class ServerWatch:
    """What is seen of a server between `begin` and `end`: its /metrics at both, its processes and cards once a second,
    in a thread. The load never fails because of it.

    Attributes:
        processes: the first one and all below it; None where it was gone before anything was sampled.
    """

    def __init__(
        self, scraped: Callable[[], Samples | None], pid: int | None = None, devices: DeviceReaders | None = None
    ) -> None:
        self._scraped, self._devices = scraped, devices
        self._root = psutil.Process(pid) if pid is not None and psutil.pid_exists(pid) else None
        self._tree: list[psutil.Process] = []
        self._looks = self._most = 0
        self._resident: list[int] = []
        self._cpu_s: dict[int, tuple[float, float]] = {}  # process → first and last processor time seen
        self._readings: dict[str, list[DeviceReading]] = defaultdict(list)
        self._trouble: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-watch", daemon=True)
        self._before: Samples | None = None
        self._began_s: float | None = None
        self.server: ServerFigures | None = None
        self.processes: ServerProcesses | None = None
        self.device: tuple[DeviceUse, ...] = ()

    def begin(self) -> None:
        self._before, self._began_s = self._scraped(), time.perf_counter()
        self._look_at_processes()
        self._thread.start()

    def end(self) -> None:
        """Once, and only where it began. A tool that hangs is left to its own time limit."""
        if self._began_s is None or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(_STOPPING_S)
        self._looks = 0
        self._look_at_processes()
        seconds = time.perf_counter() - self._began_s
        self.server = figures_between(self._before, self._scraped(), seconds)
        if self._resident:
            self.processes = self._process_figures(seconds)
        local = self._devices
        self.device = tuple(
            use_of(
                card,
                list(self._readings.get(card, ())),
                source="gauges of /metrics" if local is None else local.source,
                emulated=local is not None and local.emulated,
                trouble=self._trouble.get(card, ""),
            )
            for card in sorted({*self._readings, *self._trouble})
        )

    def _watch(self) -> None:
        cards = True
        while True:
            began_s = time.monotonic()
            self._look_at_processes()
            cards = cards and self._look_at_cards()
            if self._stop.wait(max(0.0, _SAMPLE_S - (time.monotonic() - began_s))):
                return

    def _look_at_cards(self) -> bool:
        """Whether there is a reason to look again: a server without such gauges is left alone."""
        if self._devices is None:
            told: dict[str, dict[str, float]] = defaultdict(dict)
            scraped = self._scraped() or {}
            for gauge, (quantity, factor) in _GAUGES.items():
                for labels, value in scraped.get(gauge, {}).items():
                    told[dict(labels).get("gpu_uuid", "")][quantity] = factor * value
            for card, figures in told.items():
                self._readings[card].append(DeviceReading(**figures))
            return bool(told)
        for card, read in self._devices.readers.items():
            try:
                self._readings[card].append(read())
            except ToolchainError as error:
                self._trouble[card] = str(error)
        return True

    def _look_at_processes(self) -> None:
        if self._root is None:
            return
        try:
            if self._looks % _TREE_EVERY == 0 or not self._tree:
                self._tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        self._looks += 1
        resident = seen = 0
        for process in self._tree:
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                with process.oneshot():
                    resident += process.memory_info().rss
                    times = process.cpu_times()
                spent = times.user + times.system
                self._cpu_s[process.pid] = (self._cpu_s.get(process.pid, (spent, spent))[0], spent)
                seen += 1
        if seen:
            self._resident.append(resident)
            self._most = max(self._most, seen)

    def _process_figures(self, seconds: float) -> ServerProcesses:
        fifth, grown = len(self._resident) // 5, None
        if len(self._resident) >= 10:
            grown = round(median(self._resident[-fifth:]) - median(self._resident[fifth : 2 * fifth]))
        return ServerProcesses(
            processes=self._most,
            cores=sum(last - first for first, last in self._cpu_s.values()) / max(seconds, 1e-9),
            resident_begin_bytes=self._resident[0],
            resident_end_bytes=self._resident[-1],
            resident_peak_bytes=max(self._resident),
            grown_bytes=grown,
        )
