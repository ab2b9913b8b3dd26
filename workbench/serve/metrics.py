"""What a running service tells Prometheus: requests, errors, waiting, batches, padding.

The process that has queues and workers counts batches; front ends in processes of their own count their requests, and
`Merged` makes one exposition of all: counters and histograms are summed, gauges get a label. What others keep anyway
(workers, front ends, connections) they tell themselves, as collectors. Names follow Prometheus' conventions:
base units (seconds, bytes), counters end in `_total`. `workbench.shipping.deployment` draws its dashboard from these
names, and a test holds it to them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from workbench.bundle.manifest import Manifest

SECONDS = (
    *(0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0),
)
"""Bounds of time buckets: at most a factor of 1.5 apart where services live (1 to 300 ms), so that a percentile read
from them is wrong by less than that."""
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
MOST_LENGTHS = 64
"""Raw tensors may have any length; beyond this many, further ones share the label 'other', so that clients cannot grow
the exposition without bound."""


class Metrics:
    """Counters of one process, read by `text`.

    A request costs the front end `received`, `answered` and its share of `batch`: about 10 µs together.

    Attributes:
        registry: collectors that are registered are asked too at every scrape.
        errors: requests that were refused or failed, by a closed set of kinds; of what came as far as /predict,
            `answered` is told as well.
        key_requests: names come from the file of keys alone.
        depth: rows that wait now, over all bins.
    """

    def __init__(self, *, about: Mapping[str, str] | None = None, lengths: Sequence[int] = ()) -> None:
        """Every series that is known beforehand starts at 0, so that the first scrape already has it.

        Args:
            about: labels of `workbench_bundle_info`, as `bundle_labels` gives them.
            lengths: the length bins.
        """
        # a timestamp beside each series would lengthen every scrape; the library has this switch per process only
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it without types
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"workbench_{name}", what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(f"workbench_{name}", what, buckets=buckets, registry=registry)

        self.received = counter("requests_received", "Requests to /predict that arrived.")
        self._answers = counter("requests", "Requests to /predict that were answered, by status.", "status")
        self.errors = counter("errors", "Requests that were refused or failed, by kind.", "kind")
        self.key_requests = counter("key_requests", "Requests that held a key, by its name.", "key")
        self._latency = histogram(
            "request_duration_seconds", "From a request's arrival to its answer; successful answers only."
        )
        self._waited = histogram(
            "queue_duration_seconds", "From a row's entry into the queue of its bin to the start of its batch."
        )
        self._model_time = histogram("model_duration_seconds", "Time of one call of the model.")
        self._batch_rows = histogram("batch_rows", "Rows in a batch.", ROWS)
        self._bin_batches = counter("bin_batches", "Batches that ran, by length bin.", "length")
        self._bin_rows = counter("bin_rows", "Rows that ran, by length bin.", "length")
        self._positions = counter("positions", "Positions that the model computed: rows times padded length.")
        self._padded = counter("padded_positions", "Positions among them that hold padding: waste.")
        self._busy = counter("worker_busy_seconds", "Time a worker spent in the model.", "worker")
        self.depth = Gauge("workbench_queue_depth", "Rows that wait for a batch.", registry=registry)
        if about is not None:
            info = Gauge(
                "workbench_bundle_info",
                '1; its labels say what is served. Figures of emulated="true" were measured on no device.',
                list(about),
                registry=registry,
            )
            info.labels(**about).set(1)
        self._by_length: dict[int, tuple[Counter, Counter]] = {}
        for length in lengths:
            self._of_length(length)
        self._answers.labels("200")

    def answered(self, status: int, latency_s: float) -> None:
        """A request was answered, `latency_s` after it arrived."""
        self._answers.labels(str(status)).inc()
        if 200 <= status < 300:
            self._latency.observe(latency_s)

    def batch(
        self,
        *,
        length: int,
        rows: int,
        positions: int,
        padded: int,
        waited_s: Sequence[float],
        run_s: float,
        worker: int,
    ) -> None:
        """A batch ran.

        Args:
            length: its bin; 0 where samples are not sequences.
            positions: what the model computed, rows that were added to fill a fixed batch included.
            padded: how many of `positions` hold no token of a request.
            waited_s: of each row, in its queue.
            run_s: in the model.
        """
        batches, bin_rows = self._of_length(length)
        batches.inc()
        bin_rows.inc(rows)
        self._batch_rows.observe(rows)
        self._positions.inc(positions)
        self._padded.inc(padded)
        for waited in waited_s:
            self._waited.observe(waited)
        self._model_time.observe(run_s)
        self._busy.labels(str(worker)).inc(run_s)

    def text(self) -> bytes:
        """Everything in Prometheus' text format; takes about a millisecond."""
        return generate_latest(self.registry)

    def _of_length(self, length: int) -> tuple[Counter, Counter]:
        found = self._by_length.get(length)
        if found is None:
            label = str(length) if len(self._by_length) < MOST_LENGTHS else "other"
            found = self._bin_batches.labels(label), self._bin_rows.labels(label)
            if label != "other":  # what falls under 'other' is not remembered one by one either
                self._by_length[length] = found
        return found


def bundle_labels(manifest: Manifest) -> dict[str, str]:
    """The labels of `workbench_bundle_info`: which bundle this is, and whether its device was emulated."""
    return {
        "name": manifest.name,
        "task": manifest.task,
        "candidate_id": manifest.candidate_id,
        "target": manifest.artifact.target,
        "emulated": str(manifest.artifact.toolchain.emulated).lower(),
        "model_sha256": manifest.model.sha256,
        "workbench": manifest.workbench,
    }


def labelled(kind: Any, name: str, about: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A family whose samples have one label: (its value, the sample's)."""
    found: Metric = kind(name, about, labels=[label])
    for of, value in values:
        found.add_metric([of], value)  # type: ignore[attr-defined]  # every family but their base has it
    return found


Snapshot = list[list[Any]]
"""[name, kind, help, [[series, [[label, value], …], value], …]] of each family: what JSON can carry."""

_Sums = collections.Counter[tuple[str, str, tuple[tuple[str, str], ...]]]
"""By family, series and labels."""
_SUMMED = ("counter", "histogram")
_GAUGES_OF_FRONT_ENDS = ("workbench_connections", "process_")
"""What a front end alone knows, or of itself; its other gauges say nothing, as queues and workers are elsewhere."""


def snapshot(metrics: Metrics) -> Snapshot:
    """What one process has counted."""
    return [
        [family.name, family.type, family.documentation, [[s.name, sorted(s.labels.items()), s.value] for s in samples]]
        for family in metrics.registry.collect()
        if (samples := family.samples)
    ]


class Merged:
    """Front ends' snapshots beside the families of the process that has queues and workers.

    What a front end had counted when it died stays counted, so that no counter falls.
    """

    def __init__(self) -> None:
        self.last: dict[int, Snapshot] = {}
        """By front end."""
        self._gone: _Sums = collections.Counter()

    def lost(self, front_end: int) -> None:
        """Its process ended; the next snapshot of this number begins at nothing."""
        _add(self._gone, self.last.pop(front_end, []))

    def text(self, own: Metrics) -> bytes:
        """Everything in Prometheus' text format."""
        families: dict[str, Metric] = {}
        sums = collections.Counter(self._gone)
        for number, found in [(None, snapshot(own)), *sorted(self.last.items())]:
            _add(sums, found)
            of = {} if number is None else {"front_end": str(number)}
            for name, kind, help_text, samples in found:
                family = families.setdefault(name, Metric(name, help_text, kind))
                if kind not in _SUMMED and (number is None or name.startswith(_GAUGES_OF_FRONT_ENDS)):
                    for series, labels, value in samples:
                        family.add_sample(series, {**dict(labels), **of}, value)
        for (name, series, pairs), total in sums.items():
            if name in families:
                families[name].add_sample(series, dict(pairs), total)
        return generate_latest(SimpleNamespace(collect=families.values))  # which collects, no more


def _add(sums: _Sums, found: Snapshot) -> None:
    for name, kind, _, samples in found:
        if kind in _SUMMED:
            for series, labels, value in samples:
                sums[name, series, tuple((str(label), str(of)) for label, of in labels)] += value
