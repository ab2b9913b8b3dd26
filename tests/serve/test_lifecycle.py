"""Starting, draining, dying: a real service whose processes are told to end, or are killed."""

import concurrent.futures
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serve.attacks import good
from tests.serve.making import Running, asked, gone, launch, make_bundle, metric, running, standing

SLOW = 3
"""Matrix products of the slow model: a call takes a quarter of a second or more."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("slow"), slow=SLOW)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="module")
def narrow(slow: Path) -> Iterator[Running]:
    """One worker, one sample at a time, eight that may wait. Every test leaves it idle and healthy."""
    with running(slow, "--max-batch-size", "1", "--queue-limit", "8") as service:
        yield service


def test_sigterm_answers_what_is_there_refuses_the_rest_and_leaves_nothing(slow: Path) -> None:
    with running(slow, "--max-batch-size", "1") as service, concurrent.futures.ThreadPoolExecutor(8) as pool:
        family = service.family()
        with standing(service):
            waiting = asked(service, pool, 4)
            service.process.send_signal(signal.SIGTERM)
            service.wait_until(lambda: any(e["event"] == "draining" for e in service.events()))
            late, health = service.predict({"text": "bell"}), service.health()

        assert [f.result().status for f in waiting] == [200] * 4
        assert service.process.wait(300) == 0
        assert gone(family)
    assert (late.status, late.body["error"]["kind"], late.headers["retry-after"]) == (503, "draining", "1")
    assert (health.status, health.body["status"]) == (503, "draining")


def test_a_second_sigterm_ends_at_once(slow: Path) -> None:
    with running(slow, "--max-batch-size", "1") as service, concurrent.futures.ThreadPoolExecutor(30) as pool:
        family = service.family()
        waiting = asked(service, pool, 30)
        service.process.send_signal(signal.SIGTERM)
        service.wait_until(lambda: any(e["event"] == "draining" for e in service.events()))
        service.process.send_signal(signal.SIGTERM)

        assert service.process.wait(300) == 0
        assert gone(family)
        ends = [f.exception() or f.result().status for f in waiting]
    assert any(end != 200 for end in ends)


def test_before_the_golden_samples_were_replayed_nothing_is_answered(quick: Path) -> None:
    with running(quick, ready=False) as service:
        health, reply = service.health(), service.predict({"text": "anna"})
        service.wait_until(lambda: service.health().status == 200)

        assert (health.status, health.body["status"]) == (503, "starting")
        assert (reply.status, reply.body["error"]["kind"], reply.headers["retry-after"]) == (503, "starting", "1")
        assert service.predict({"text": "anna"}).status == 200
    with running(quick, ready=False) as service:
        family = service.family()
        assert service.end() == 0, "told to end while it starts"
        assert gone(family)


def test_the_batch_of_a_killed_worker_runs_on_another_and_the_worker_comes_back(slow: Path) -> None:
    with (
        running(slow, "--max-batch-size", "1", "--workers", "2") as service,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        pids = service.worker_pids()
        waiting = asked(service, pool, 6)
        os.kill(pids[0], signal.SIGKILL)
        service.wait_until(lambda: any(e["event"] == "worker_lost" for e in service.events()))
        degraded = service.health()

        assert [f.result().status for f in waiting] == [200] * 6
        service.wait_until(lambda: service.health().body["status"] == "ok")
        assert service.worker_pids()[0] != pids[0]
        assert service.worker_pids()[1] == pids[1]
        assert service.health().body["workers"][0]["restarts"] == 1
        family = service.family()
        assert service.end() == 0
        assert gone(family)
    assert (degraded.status, degraded.body["status"]) == (200, "degraded")


def test_a_request_that_kills_worker_after_worker_is_given_up(narrow: Running) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        [waiting] = asked(narrow, pool, 1)
        for _ in range(2):
            narrow.wait_until(lambda: narrow.health().body["status"] == "ok")
            narrow.wait_until(lambda: waiting.done() or metric(narrow, "workbench_queue_depth") == 0)
            os.kill(narrow.worker_pids()[0], signal.SIGKILL)
            narrow.wait_until(lambda: narrow.health().body["status"] != "ok")

        reply = waiting.result()
    assert (reply.status, reply.body["error"]["kind"]) == (503, "worker_lost")
    narrow.wait_until(lambda: narrow.health().body["status"] == "ok")
    assert narrow.predict({"text": "anna"}).status == 200


def let_open(service: Running, more: int) -> None:
    """So many files may be open beside those that are; more than there were at first for a negative number."""
    hard = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)[1]
    now = hard if more < 0 else psutil.Process(service.process.pid).num_fds() + more
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (now, hard))


def test_a_worker_that_dies_in_every_start_ends_the_service_with_an_error(quick: Path) -> None:
    with running(quick, "--no-worker-timeout-s", "0.5", ready=False) as service:
        while service.process.poll() is None:
            for process in psutil.Process(service.process.pid).children():
                if "spawn_main" in " ".join(process.cmdline()):
                    process.kill()
            time.sleep(0.02)  # between looks for the next one

        assert service.process.wait(300) == 3
    said = service.log.read_text()
    assert "error: no worker could answer for 0.5 s (--no-worker-timeout-s), in which " in said
    assert "of worker 0: while it started, it was ended by SIGKILL, sent by somebody, or a watchdog of memory. " in said
    assert "Traceback" not in said


def test_a_worker_for_which_no_file_is_left_is_tried_again_until_one_is(quick: Path) -> None:
    """EMFILE, as clients' connections bring it about."""
    with running(quick) as service:
        let_open(service, 1)  # for the connections of this test
        os.kill(service.worker_pids()[0], signal.SIGKILL)
        service.wait_until(lambda: service.health().body["workers"][0].get("failed_starts", 0) >= 2)
        health = service.health()
        lasts_s = metric(service, "workbench_no_worker_seconds")
        refused = service.predict({"text": "anna"})
        let_open(service, -1)
        service.wait_until(lambda: service.health().status == 200)

        assert service.predict({"text": "anna"}).status == 200
        assert metric(service, 'workbench_worker_failed_starts_total{worker="0"}') >= 2
        assert metric(service, "workbench_no_worker_seconds") == 0
        assert "no_worker" not in service.health().body
    assert (health.status, health.body["status"]) == (503, "down")
    assert health.body["workers"][0]["error"] == "it could not be started: Too many open files"
    assert health.body["no_worker"]["gives_up_after_s"] == 60
    assert 0 < health.body["no_worker"]["lasts_s"] <= lasts_s + 0.05  # it is told in tenths
    assert (refused.status, refused.body["error"]["kind"]) == (503, "worker_lost")


def test_beyond_the_queue_requests_are_refused_with_a_time_to_come_back(narrow: Running) -> None:
    before = metric(narrow, 'workbench_errors_total{kind="overloaded"}')
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        with standing(narrow):
            waiting = [pool.submit(narrow.predict, {"text": "anna"}) for _ in range(20)]
            narrow.wait_until(lambda: metric(narrow, 'workbench_errors_total{kind="overloaded"}') == before + 11)
        replies = [one.result() for one in waiting]

    refused = [r for r in replies if r.status != 200]
    assert {(r.status, r.body["error"]["kind"]) for r in refused} == {(503, "overloaded")}
    assert all(int(r.headers["retry-after"]) >= 1 for r in refused)
    assert len(refused) == 11, "one runs, eight wait"
    assert narrow.predict({"texts": ["anna"] * 9}).status == 422


def test_a_client_that_goes_away_leaves_its_place_to_others(narrow: Running) -> None:
    batches = metric(narrow, "workbench_batch_rows_count")
    left = metric(narrow, 'workbench_errors_total{kind="client_gone"}')
    clients = [socket.create_connection((narrow.host, narrow.port)) for _ in range(8)]
    with standing(narrow):
        for client in clients:
            client.sendall(good("anna"))
        narrow.wait_until(lambda: metric(narrow, "workbench_queue_depth") == 7)
        for client in clients:
            client.close()
        narrow.wait_until(lambda: metric(narrow, 'workbench_errors_total{kind="client_gone"}') == left + 8)
        assert narrow.health().body["waiting"] == 0

    assert narrow.predict({"text": "anna"}).status == 200
    assert metric(narrow, "workbench_batch_rows_count") <= batches + 2, "what was running, and the last"


def test_what_cannot_be_served_ends_with_a_reason_and_its_exit_code(quick: Path, tmp_path: Path) -> None:
    for name in ("spoilt", "damaged"):
        (tmp_path / name).mkdir()
    spoilt, damaged = make_bundle(tmp_path / "spoilt", spoilt=True), make_bundle(tmp_path / "damaged")
    with (damaged / "tokenizer.json").open("a") as file:
        file.write(" ")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for number, (bundle, arguments, code, said) in enumerate(
            (
                (spoilt, (), 1, "output 'logits' of golden batch 0 differs by 1"),
                (damaged, (), 1, "tokenizer.json has"),
                (quick, ("--front-ends", "1", "--port", port), 2, f"--port: 127.0.0.1:{port} cannot be bound: "),
                (quick, ("--front-ends", "2", "--port", port), 2, f"--port: 127.0.0.1:{port} cannot be bound: "),
            )
        ):
            log = tmp_path / f"{number}.log"
            assert launch(bundle, log, *arguments).wait(300) == code, said
            assert said in log.read_text()
            assert '"worker_ready"' not in log.read_text()


def test_ctrl_c_drains_like_sigterm_and_does_not_wait_for_bodies_that_do_not_come(slow: Path) -> None:
    with running(slow, "--max-batch-size", "1") as service, concurrent.futures.ThreadPoolExecutor(4) as pool:
        family = service.family()
        slow_clients = [socket.create_connection((service.host, service.port)) for _ in range(20)]
        for client in slow_clients:
            client.sendall(good()[:-5])
        waiting = asked(service, pool, 2)
        os.killpg(service.process.pid, signal.SIGINT)  # a terminal, or a service manager, tells the whole group

        assert [f.result().status for f in waiting] == [200, 200]
        assert service.process.wait(300) == 0
        assert gone(family)
        assert any(e["event"] == "drained" and e["whole"] for e in service.events())
        for client in slow_clients:
            client.close()


HEAVY = ("optuna", "mlflow", "ray", "torch", "sklearn", "plotly", "pandas", "transformers", "scipy")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_service_is_two_processes_beside_the_resource_tracker_and_has_mapped_none_of_their_libraries(
    tmp_path: Path,
) -> None:
    with running(make_bundle(tmp_path)) as service:
        assert service.predict({"text": "anna"}).status == 200
        mapped = {m.path for process in service.family() for m in process.memory_maps()}
        commands = [" ".join(process.cmdline()) for process in service.family()[1:]]

    assert any("onnxruntime" in path for path in mapped)
    assert not [path for path in mapped for name in HEAVY if f"/site-packages/{name}/" in path]
    assert ["resource_tracker" in command for command in sorted(commands)].count(True) == 1
    assert len(commands) == 2
