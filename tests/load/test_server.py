"""What the load generator reads of a server: its metrics, its processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.load.servers import delayed, serving
from tests.serve.making import ready_workers, show_workers
from workbench.load.server import ServerWatch, figures_between, listener, read_samples, scrape
from workbench.serve.metrics import Metrics


def test_the_services_own_metrics_become_figures_of_the_window() -> None:
    metrics = Metrics(about={"name": "x"}, lengths=(16, 32))
    show_workers(metrics, ready_workers(1000, 1000))
    metrics.batch(length=16, rows=9, positions=144, padded=100, waited_s=[9.0] * 9, run_s=9.0, worker=0)
    before = read_samples(metrics.text().decode())
    metrics.batch(length=16, rows=3, positions=48, padded=8, waited_s=[0.001, 0.002, 0.003], run_s=0.5, worker=0)
    metrics.batch(length=32, rows=1, positions=32, padded=12, waited_s=[0.006], run_s=0.3, worker=1)
    metrics.errors.labels("overloaded").inc()
    after = read_samples(metrics.text().decode())

    found = figures_between(before, after, 2.0)

    assert found is not None
    assert found.batches == 2
    assert found.mean_batch == pytest.approx(2.0)
    assert found.padding_share == pytest.approx(20 / 80)
    assert found.queue_ms == pytest.approx(3.0)
    assert found.model_ms == pytest.approx(400.0)
    assert found.worker_busy == pytest.approx(0.8 / 2 / 2)
    assert found.batch_rows == {"1": 1, "3": 1}
    assert found.bin_rows == {"16": 3, "32": 1}
    assert found.errors == {"overloaded": 1}
    assert found.device_memory_bytes == 2000


def test_a_server_without_our_metrics_or_started_anew_has_no_figures() -> None:
    with serving(delayed(0)) as server:
        assert scrape("127.0.0.1", server.port) is None
        assert (listener(server.port) or 1) > 0  # None where the system does not tell
    foreign = read_samples('process_cpu_seconds_total 4\n# HELP x y\nrequests{code="200"} 7\n')
    assert foreign["requests"] == {frozenset({("code", "200")}): 7.0}
    assert not read_samples("<html>\n")
    assert figures_between(foreign, foreign, 1.0) is None
    assert figures_between(None, foreign, 1.0) is None
    old, new = Metrics(), Metrics()
    old.batch(length=0, rows=1, positions=1, padded=0, waited_s=[0.1], run_s=0.1, worker=0)
    assert figures_between(read_samples(old.text().decode()), read_samples(new.text().decode()), 1.0) is None


def test_processes_below_the_server_count_with_it() -> None:
    code = (
        "import subprocess, sys, time\n"
        "up = 'x = bytearray(80_000_000)\\nprint(len(x), flush=True)\\nwhile True: pass'\n"
        "child = subprocess.Popen([sys.executable, '-c', up])\n"
        "time.sleep(900)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"80000000\n"
            watch, gone = (ServerWatch(lambda: None, parent.pid) for _ in range(2))
            watch.begin()
            time.sleep(1.3)
            watch.end()
            found = watch.processes
        finally:
            os.killpg(parent.pid, signal.SIGKILL)

    assert found is not None
    assert found.processes == 2
    assert 0.01 < found.cores < 1.5  # of a machine that others may keep busy
    assert found.resident_peak_bytes > 80_000_000
    assert found.grown_bytes is None, "too few samples to speak of growth"
    gone.begin()
    gone.end()
    assert gone.processes is None, "the server is gone"
