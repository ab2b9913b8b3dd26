"""A port of administration: health from a process of its own, and what else is moved there."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.serve.making import Reply, Running, make_bundle, running
from workbench.bundle import read_bundle
from workbench.serve.__main__ import start
from workbench.serve.access import Hosts, drawn_key
from workbench.serve.admin import Watcher
from workbench.serve.lifecycle import with_room
from workbench.serve.settings import Limits, ServeSettings
from workbench.serve.wire import pack
from workbench.values.errors import ConfigError
from workbench.values.model import TensorSpec

SECRET, LINE = drawn_key("first")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"{LINE}   5/s\n")
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def service(bundle: Path, keys: Path) -> Iterator[Running]:
    more = ("--admin-port", "0", "--metrics", "admin", "--docs", "off", "--api-keys", str(keys))
    with running(bundle, *more, "--allowed-host", "model.example") as found:
        yield found


def admin(service: Running) -> Running:
    url = next(e["admin"] for e in service.events() if e["event"] == "listening")
    found = replace(service, port=int(url.rpartition(":")[2]))
    found.wait_until(lambda: _listens(found))
    return found


def _listens(service: Running) -> bool:
    try:
        return service.request("GET", "/health/ready").status == 200
    except (OSError, http.client.HTTPException):
        return False


def watcher_of(service: Running) -> psutil.Process:
    return psutil.Process([e["pid"] for e in service.events() if e["event"] == "watcher_ready"][-1])


def test_health_is_told_at_both_ports_and_metrics_only_where_they_were_moved(service: Running) -> None:
    beside = admin(service)

    assert beside.request("GET", "/health/ready").body == {"status": "ready"}
    assert beside.request("GET", "/health/live").body["status"] == "live"
    assert beside.request("GET", "/health").body["workers"][0]["state"] == "ready"
    assert b"workbench_queue_depth" in beside.request("GET", "/metrics").body
    for path in ("/metrics", "/docs", "/openapi.json"):
        assert service.request("GET", path).status == 404, path
    for path in ("/docs", "/openapi.json", "/info", "/predict"):
        assert beside.request("GET", path).status == 404, path
    assert beside.request("POST", "/health/live", b"").status == 405
    assert beside.request("GET", "/health/live", Host="evil.example").status == 421
    assert beside.request("GET", "/health/live", Host="10.0.0.9:80").status == 200, "what a cluster's probe names"
    assert service.request("GET", "/health", Host="10.0.0.9:80").status == 421
    assert service.request("GET", "/health", Host="model.example").status == 200


def test_keys_are_named_limited_and_rotated_while_the_service_runs(service: Running, keys: Path) -> None:
    second, line = drawn_key("second")
    replies: list[Reply] = []

    def limited() -> bool:
        """Five come at once; so many more in a second may be what this machine takes to send them."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies.extend(pool.map(lambda _: service.predict({"text": "anna"}, **{"X-API-Key": SECRET}), range(8)))
        return any(reply.status != 200 for reply in replies)

    service.wait_until(limited)
    found = {(r.status, r.body["error"]["kind"], r.headers["retry-after"]) for r in replies if r.status != 200}
    assert found == {(429, "rate", "1")}
    assert [reply.status for reply in replies].count(200) >= 5
    assert service.predict({"text": "anna"}, **{"X-API-Key": second}).status == 401
    keys.write_text(f"{LINE}\n{line}\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait_until(lambda: service.predict({"text": "anna"}, **{"X-API-Key": second}).status == 200)
    assert service.predict({"text": "anna"}, **{"X-API-Key": SECRET}).status == 200
    keys.write_text(f"{line}\n")
    service.wait_until(lambda: service.predict({"text": "anna"}, **{"X-API-Key": SECRET}).status == 401)
    text = admin(service).request("GET", "/metrics").body.decode()
    assert 'workbench_key_requests_total{key="first"}' in text
    assert 'workbench_key_requests_total{key="second"}' in text
    assert SECRET not in text + service.log.read_text()


def test_liveness_is_told_while_the_front_end_has_no_turn_and_the_watcher_comes_back(service: Running) -> None:
    beside = admin(service)
    os.kill(service.process.pid, signal.SIGSTOP)
    try:
        stopped = beside.request("GET", "/health/live")
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    assert (stopped.status, stopped.body["status"]) == (200, "live"), "ten seconds were not over"

    first = watcher_of(service)
    first.kill()
    service.wait_until(lambda: first.pid not in [p.pid for p in service.family()])
    service.wait_until(lambda: _listens(beside))
    assert any(e["event"] == "watcher_lost" for e in service.events())


def test_a_service_that_says_nothing_is_not_live_and_is_again_when_it_speaks_and_its_end_is_the_watchers() -> None:
    service, link = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def watch() -> None:
            await Watcher(Hosts(addresses=True), ["/metrics"], hang_s=0.5).run(listener, link)

        thread = threading.Thread(target=asyncio.run, args=(watch(),))
        thread.start()

        def ask(path: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            with contextlib.closing(connection):
                connection.request("GET", path)
                return connection.getresponse().status

        def until(wanted: int, *paths: str, beat: bytes = b"") -> bool:
            """Whether all answer so before long; however slow the machine is, `beat` is said before each look."""
            end = time.monotonic() + 60
            while time.monotonic() < end:
                service.sendall(beat)
                if [ask(path) for path in paths] == [wanted] * len(paths):
                    return True
                time.sleep(0.05)
            return False

        probes = ("/health/live", "/health/ready", "/health")
        beat = pack({"health": [200, {"status": "ok"}]})
        starting = ask("/health/ready")
        assert until(200, *probes, beat=beat)
        assert until(503, *probes)
        assert until(200, "/health/live", beat=beat)
        service.close()
        thread.join(60)

    assert starting == 503
    assert not thread.is_alive()


def test_silent_and_hostile_clients_do_not_keep_probes_from_being_answered(service: Running) -> None:
    beside = admin(service)
    held = [socket.create_connection((beside.host, beside.port)) for _ in range(40)]
    try:
        for number, client in enumerate(held):
            if number % 2:
                client.sendall(b"GET /health/live HTTP/1.1\r\nX: " + b"a" * 10_000)
        with socket.create_connection((beside.host, beside.port), timeout=300) as client:
            client.sendall(b"\x16\x03" + b"a" * 40_000)
            with pytest.raises((ConnectionError, AssertionError)):
                assert client.recv(100) != b""

        assert beside.request("GET", "/health/live").status == 200
    finally:
        for client in held:
            client.close()


def test_options_are_checked_before_anything_starts(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_API_KEY", raising=False)
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"host": "0.0.0.0"}, "--host: 0.0.0.0 is not loopback, and no key is asked for."),
        ({"host": "a..b", "no_key": True}, "--host: 'a..b' is no address: "),  # found without asking a name server
        ({"api_keys": Path("/nowhere/keys")}, "/nowhere/keys: --api-keys: there is no such file of keys."),
        ({"metrics": "admin"}, "--metrics: there is no port of administration."),
        ({"rate_limit": 5.0}, "--rate-limit: limits requests of each key, and there is none."),
        ({"allowed_host": ["http://a"]}, "--allowed-host: 'http://a' is no host."),
        ({"admin_port": 70_000}, "--admin-port: 70000 is no port."),
        ({"devices": "0"}, "--devices: '0' names no cards."),
        ({"devices": "cards"}, "--devices: 'cards' names no cards."),
        ({"devices": ","}, "--devices: ',' names no cards."),
        ({"devices": "1,1"}, "--devices: '1,1' names a card twice."),
        ({"devices": "all"}, "--devices: all: target onnxruntime computes on the host's processors and has no"),
        ({"front_ends": "many"}, "--front-ends: 'many' is neither a number nor auto."),
        ({"front_ends": "0"}, "--front-ends: 0 is not 1 to 64."),
    )
    for changed, said in changes:
        with pytest.raises(ConfigError) as error:
            start(bundle, ServeSettings(**{"port": 0, **changed}), Limits())
        assert said in str(error.value)
    with pytest.raises(ConfigError, match="--max-connections: 0 is not positive"):
        Limits(connections=0)


def test_a_picture_fits_into_a_body_and_texts_keep_their_limit(bundle: Path) -> None:
    opened, settings = read_bundle(bundle), ServeSettings()
    picture = TensorSpec(name="input", dtype="float32", shape=("batch", 3, 240, 320))
    manifest = replace(opened.manifest, text=None, model=replace(opened.manifest.model, inputs=(picture,)))

    def room(axes: tuple[int | str, ...]) -> int:
        spec = replace(picture, shape=axes)
        changed = replace(manifest, model=replace(manifest.model, inputs=(spec,)))
        return with_room(settings, replace(opened, manifest=changed)).limits.body_bytes

    limits = with_room(settings, replace(opened, manifest=manifest)).limits

    assert with_room(settings, opened) == settings
    assert limits.body_bytes == 2 * 26 * 3 * 240 * 320 > Limits().body_bytes
    assert limits.unread_bytes >= 16 * limits.body_bytes
    assert room(("batch", 3, 240, 320, "more")) == 4 * limits.body_bytes
