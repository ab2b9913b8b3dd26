"""The metrics of several processes as those of one service: counters and histograms are summed, gauges get a label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from workbench.serve.metrics import Metrics

Snapshot = list[list[Any]]
"""[name, kind, help, [[series, [[label, value], …], value], …]] of each family: what JSON can carry."""

LABEL = "front_end"
_SUMMED = ("counter", "histogram")
_GAUGES_OF_FRONT_ENDS = ("workbench_connections", "process_")
"""What a front end alone knows, or of itself; its other gauges say nothing, as queues and workers are elsewhere."""
_NOT_OF_THE_FIRST = ("workbench_connections",)


def snapshot(metrics: Metrics) -> Snapshot:
    """What one process has counted."""
    return [
        [family.name, family.type, family.documentation, [[s.name, sorted(s.labels.items()), s.value] for s in samples]]
        for family in metrics.families()
        if (samples := family.samples)
    ]


class Merged:
    """Front ends' snapshots beside the families of the process that has queues and workers.

    What a front end had counted when it died stays counted, so that no counter falls.
    """

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}
        self._gone: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}

    def put(self, front_end: int, found: Snapshot) -> None:
        self._last[front_end] = found

    def lost(self, front_end: int) -> None:
        """Its process ended; the next snapshot of this number begins at nothing."""
        for name, kind, _, samples in self._last.pop(front_end, []):
            if kind in _SUMMED:
                for series, labels, value in samples:
                    key = name, series, _labels(labels)
                    self._gone[key] = self._gone.get(key, 0.0) + value

    def text(self, own: Metrics, more: Iterable[Metric] = ()) -> bytes:
        """Everything in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(_Fixed((*self._families(own), *more)))
        return generate_latest(registry)

    def _families(self, own: Metrics) -> list[Metric]:
        families: dict[str, Metric] = {}
        sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}

        def add(found: Sequence[Sequence[Any]], front_end: int | None) -> None:
            for name, kind, help_text, samples in found:
                family = families.setdefault(name, Metric(name, help_text, kind))
                if kind in _SUMMED:
                    totals = sums.setdefault(name, {})
                    for series, labels, value in samples:
                        key = series, _labels(labels)
                        totals[key] = totals.get(key, 0.0) + value
                elif front_end is None:
                    if name not in _NOT_OF_THE_FIRST:
                        for series, labels, value in samples:
                            family.add_sample(series, dict(_labels(labels)), value)
                elif name.startswith(_GAUGES_OF_FRONT_ENDS):
                    for series, labels, value in samples:
                        family.add_sample(series, {**dict(_labels(labels)), LABEL: str(front_end)}, value)

        add(snapshot(own), None)
        for number, found in sorted(self._last.items()):
            add(found, number)
        for (name, series, labels), value in self._gone.items():
            if name in sums:
                sums[name][series, labels] = sums[name].get((series, labels), 0.0) + value
        for name, totals in sums.items():
            for (series, labels), value in totals.items():
                families[name].add_sample(series, dict(labels), value)
        return list(families.values())


class _Fixed(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _labels(found: Iterable[Sequence[str]] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = found.items() if isinstance(found, Mapping) else found
    return tuple((str(name), str(value)) for name, value in pairs)
