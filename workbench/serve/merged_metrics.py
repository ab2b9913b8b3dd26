"""The metrics of several processes as those of one service: counters and histograms are summed, gauges get a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from workbench.serve.metrics import Metrics

Snapshot = list[list[Any]]
"""[name, kind, help, [[series, [[label, value], …], value], …]] of each family: what JSON can carry."""

_SUMMED = ("counter", "histogram")
_GAUGES_OF_FRONT_ENDS = ("workbench_connections", "process_")
"""What a front end alone knows, or of itself; its other gauges say nothing, as queues and workers are elsewhere."""


def snapshot(metrics: Metrics) -> Snapshot:
    """What one process has counted."""
    return [
        [family.name, family.type, family.documentation, [[s.name, sorted(s.labels.items()), s.value] for s in samples]]
        for family in metrics.families()
        if (samples := family.samples)
    ]


class Merged(Collector):
    """Front ends' snapshots beside the families of the process that has queues and workers.

    What a front end had counted when it died stays counted, so that no counter falls.
    """

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}
        self._gone: Counter[tuple[str, str, tuple[tuple[str, str], ...]]] = Counter()
        self._own: Snapshot = []

    def put(self, front_end: int, found: Snapshot) -> None:
        self._last[front_end] = found

    def lost(self, front_end: int) -> None:
        """Its process ended; the next snapshot of this number begins at nothing."""
        _add(self._gone, self._last.pop(front_end, []))

    def text(self, own: Metrics) -> bytes:
        """Everything in Prometheus' text format."""
        self._own = snapshot(own)
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        sums = Counter(self._gone)
        for number, found in [(None, self._own), *sorted(self._last.items())]:
            _add(sums, found)
            for name, kind, help_text, samples in found:
                family = families.setdefault(name, Metric(name, help_text, kind))
                if kind in _SUMMED or not (number is None or name.startswith(_GAUGES_OF_FRONT_ENDS)):
                    continue
                of = {} if number is None else {"front_end": str(number)}
                for series, labels, value in samples:
                    family.add_sample(series, {**dict(labels), **of}, value)
        for (name, series, pairs), total in sums.items():
            if name in families:
                families[name].add_sample(series, dict(pairs), total)
        return families.values()


def _add(sums: Counter[tuple[str, str, tuple[tuple[str, str], ...]]], found: Snapshot) -> None:
    for name, kind, _, samples in found:
        if kind in _SUMMED:
            for series, labels, value in samples:
                sums[name, series, tuple((str(label), str(of)) for label, of in labels)] += value
