"""Several front ends behind one port: what they share, and what happens when one of them, or what they share, dies."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.making import Reply, Running, gone, make_bundle, metric, running, samples
from workbench.values.service import ServiceSettings

THREE = ("--front-ends", "3")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=2)
    return make_bundle(tmp_path_factory.mktemp("fronts"), slow=1, service=settings)


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[Running]:
    """Every test leaves it idle and healthy."""
    with running(bundle, *THREE, WORKBENCH_API_KEY="key") as started:
        yield started


def ask(service: Running, text: str = "anna paid") -> Reply:
    return service.predict({"text": text}, **{"X-API-Key": "key"})


def front_ends(service: Running) -> dict[int, int]:
    """The process of each that is ready now or was."""
    return {e["front_end"]: e["pid"] for e in service.events() if e["event"] == "front_end_ready"}


def told(service: Running) -> bool:
    """Every front end has told what it counted, which each does with every beat; all requests here are of one row."""
    rows = metric(service, "workbench_batch_rows_sum")
    names = ("workbench_requests_received_total", "workbench_request_duration_seconds_count")
    return [metric(service, name) for name in names] == [rows, rows]


def _larger_than_two(service: Running) -> float:
    """Batches so far."""
    below = samples(service, "workbench_batch_rows_bucket")['{le="2.0"}']
    return metric(service, "workbench_batch_rows_count") - below


def test_connections_of_all_front_ends_share_their_batches(service: Running) -> None:
    """Whoever takes them in, six clients have batches of more than two."""
    larger, rows = _larger_than_two(service), metric(service, "workbench_batch_rows_sum")

    def post(connection: http.client.HTTPConnection) -> int:
        headers = {"Content-Type": "application/json", "X-API-Key": "key"}
        for _ in range(8):
            connection.request("POST", "/predict", json.dumps({"text": "anna paid"}), headers)
            answer = connection.getresponse()
            answer.read()
        return answer.status

    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(6) as pool:
        connections = [http.client.HTTPConnection(service.host, service.port, timeout=300) for _ in range(6)]
        for one in connections:
            stack.callback(one.close)
            one.connect()
        rounds, until = 0, time.monotonic() + 60
        while not rounds or (_larger_than_two(service) == larger and time.monotonic() < until):
            assert {*pool.map(post, connections)} == {200}  # a busy machine may let them in one by one
            rounds += 1

    assert metric(service, "workbench_batch_rows_sum") == rows + 48 * rounds
    assert _larger_than_two(service) > larger


def test_a_front_end_that_is_killed_costs_its_own_connections_and_no_counter_falls(service: Running) -> None:
    """Requests at other front ends are all answered, and the rows of the dead one are dropped."""
    service.wait_until(lambda: told(service))
    received = metric(service, "workbench_requests_received_total")
    assert [ask(service).status for _ in range(9)] == [200] * 9
    service.wait_until(lambda: told(service))
    assert metric(service, "workbench_requests_received_total") == received + 9
    assert samples(service, "process_resident_memory_bytes").keys() - {""} == {f'{{front_end="{n}"}}' for n in range(3)}
    stop, ends = threading.Event(), list[int | str]()

    def go_on() -> None:
        while not stop.is_set():
            try:
                ends.append(ask(service).status)
            except (OSError, http.client.HTTPException) as error:  # cut before an answer, or within one
                ends.append(type(error).__name__)

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(6)]
    for one in threads:
        one.start()
    service.wait_until(lambda: len(ends) > 12)
    victim = front_ends(service)[1]
    os.kill(victim, signal.SIGKILL)
    service.wait_until(lambda: front_ends(service)[1] != victim, 300)
    stop.set()
    for one in threads:
        one.join(300)

    cut = [end for end in ends if end != 200]
    assert all(isinstance(end, str) for end in cut), "connections were cut, no request was refused"
    assert len(cut) <= 6, "at most what was in flight"
    service.wait_until(lambda: service.health().body["status"] == "ok" and not service.health().body["waiting"])
    assert metric(service, "workbench_requests_received_total") >= received + 9
    assert samples(service, "workbench_front_end_restarts_total")['{front_end="1"}'] == 1
    assert [f["restarts"] for f in service.health().body["front_ends"]] == [0, 1, 0]


def test_front_ends_and_workers_die_with_a_first_process_that_is_killed(bundle: Path) -> None:
    with running(bundle, *THREE) as service:
        family = service.family()
        service.process.kill()

        assert gone(family)
