"""What a service tells Prometheus, read back by Prometheus' own parser."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.serve.making import ready_workers, show_workers
from workbench.serve.metrics import MOST_LENGTHS, Metrics


def families(metrics: Metrics) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}


def value(metrics: Metrics, series: str, **labels: str) -> float:
    found = [
        sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if sample.name == series and sample.labels == labels
    ]
    assert len(found) == 1, f"{series} {labels}: {found}"
    return found[0]


def test_clients_cannot_grow_the_exposition_with_tensors_of_every_length() -> None:
    metrics = Metrics()

    for length in range(1, 1000):
        metrics.batch(length=length, rows=1, positions=length, padded=0, waited_s=[0.002], run_s=0.25, worker=0)

    samples = families(metrics)["workbench_bin_rows"].samples
    assert len(samples) == MOST_LENGTHS + 1
    assert value(metrics, "workbench_bin_rows_total", length="other") == 999 - MOST_LENGTHS
    assert sum(sample.value for sample in samples) == 999


def test_a_lost_worker_is_not_alive_and_shows_no_memory_until_it_is_back() -> None:
    metrics, workers = Metrics(), ready_workers(None, 5000)
    show_workers(metrics, workers)
    assert value(metrics, "workbench_workers_alive") == 2
    assert value(metrics, "workbench_worker_device_memory_bytes", worker="1") == 5000
    assert value(metrics, "workbench_worker_resident_memory_bytes", worker="0") > 1e6

    workers[1].state, workers[1].restarts = "lost", 1

    assert value(metrics, "workbench_workers_alive") == 1
    assert [s.labels for s in families(metrics)["workbench_worker_resident_memory_bytes"].samples] == [{"worker": "0"}]
    assert families(metrics)["workbench_worker_device_memory_bytes"].samples == []
    assert value(metrics, "workbench_worker_restarts_total", worker="1") == 1
