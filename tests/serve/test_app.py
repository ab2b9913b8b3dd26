"""The HTTP entry without a socket: what happens to a client that does not finish its body."""

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tests.serve.making import make_bundle
from workbench.bundle import read_bundle
from workbench.serve.app import application
from workbench.serve.cards import HERE
from workbench.serve.dispatch import Dispatch
from workbench.serve.metrics import Metrics
from workbench.serve.service import Service
from workbench.serve.settings import Limits, ServeSettings

Message = MutableMapping[str, Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("app"))


def service_of(directory: Path, limits: Limits) -> Service:
    """A service whose workers have not been started."""
    bundle = read_bundle(directory)
    settings, metrics = ServeSettings(service=bundle.manifest.service, limits=limits), Metrics()
    queue = Dispatch(bundle, settings, metrics, [HERE], lambda why: None)
    service = Service(bundle, settings, metrics, queue)
    queue.proved = True
    return service


async def exchange(
    directory: Path, limits: Limits, incoming: list[Message], *more: tuple[bytes, bytes]
) -> tuple[list[Message], Service]:
    """Post a body of which only `incoming` comes."""
    service = service_of(directory, limits)
    sent: list[Message] = []

    async def receive() -> Message:
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *more]
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": headers}
    await application(service)(scope, receive, send)
    service.stop()
    return sent, service


def test_nobody_is_answered_when_the_client_left_in_the_middle_of_its_body(directory: Path) -> None:
    incoming: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    sent, service = asyncio.run(exchange(directory, Limits(), incoming))

    assert sent == []
    assert service.open_requests == 0


def test_without_an_answer_in_time_a_request_gets_504_and_leaves_the_queue(directory: Path) -> None:
    body: list[Message] = [{"type": "http.request", "body": b'{"text": "anna"}', "more_body": False}]

    sent, service = asyncio.run(exchange(directory, Limits(request_timeout_s=0.05), body))

    assert sent[0]["status"] == 504
    assert (service.queue.depth, service.open_requests) == (0, 0)


def test_bodies_that_came_in_part_take_a_bounded_part_of_memory(directory: Path) -> None:
    """A thousand connections may each have sent nearly a megabyte."""
    incoming: list[Message] = [
        {"type": "http.request", "body": b"x" * 60_000, "more_body": True},
        {"type": "http.request", "body": b"x" * 60_000, "more_body": True},
    ]

    sent, service = asyncio.run(exchange(directory, Limits(unread_bytes=100_000), incoming))

    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["kind"] == "overloaded"
    service.hold(100_000)  # nothing is held any more


def test_what_says_who_asks_and_how_to_read_is_said_once(directory: Path) -> None:
    for name in (b"x-api-key", b"content-type", b"content-encoding"):
        body: list[Message] = [{"type": "http.request", "body": b'{"text": "anna"}', "more_body": False}]
        sent, _ = asyncio.run(exchange(directory, Limits(), body, (name, b"a"), (name, b"b")))

        assert sent[0]["status"] == 400
        assert json.loads(sent[1]["body"])["error"]["message"] == f"The header {name.decode()} may be there once."


def test_a_body_that_says_it_is_too_large_is_not_read(directory: Path) -> None:
    """Neither is it asked for where the client expects to be told to go on."""
    sent, _ = asyncio.run(exchange(directory, Limits(body_bytes=1000), [], (b"content-length", b"1001")))

    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]


def test_others_have_a_turn_after_every_long_text_of_a_request(directory: Path) -> None:
    """They were once tokenized in one go: everybody waited a second and more."""
    body = json.dumps({"texts": ["anna paid in paris " * 500] * 64}).encode()
    turns = 0

    async def run() -> None:
        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        service = service_of(directory, Limits())
        service.abandon(await service.submit(body, asyncio.get_running_loop().time()))
        beside.cancel()
        service.stop()

    asyncio.run(run())

    assert turns >= 63
