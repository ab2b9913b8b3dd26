"""The application without a socket: who waits in vain, who goes, what is not even read."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.serve.making import make_bundle
from workbench.bundle.opened import read_bundle
from workbench.serve.app import Application
from workbench.serve.dispatch import Dispatch
from workbench.serve.http import Head
from workbench.serve.metrics import Metrics
from workbench.serve.refusals import Refusal
from workbench.serve.service import Service
from workbench.serve.settings import Limits, ServeSettings
from workbench.serve.workers import HERE


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("app"))


def site_of(directory: Path, limits: Limits) -> Application:
    """Its workers have not been started."""
    bundle = read_bundle(directory)
    settings, metrics = ServeSettings(service=bundle.manifest.service, limits=limits), Metrics()
    queue = Dispatch(bundle, settings, metrics, [HERE], lambda why: None)
    queue.proved = True
    return Application(Service(bundle, settings, metrics, queue))


def head(*more: tuple[bytes, bytes]) -> Head:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *more]
    return Head(b"POST", b"/predict", headers, "127.0.0.1", time.perf_counter())


def test_without_an_answer_in_time_a_request_gets_504_and_one_whose_client_goes_leaves_the_queue(
    directory: Path,
) -> None:
    async def run() -> None:
        site = site_of(directory, Limits(request_timeout_s=0.3))
        left = asyncio.create_task(site.answer(head(), b'{"text": "anna"}'))
        await asyncio.sleep(0.1)
        assert site.open_requests == 1
        left.cancel()
        status, *_ = await site.answer(head(), b'{"text": "anna"}')
        assert (status, left.cancelled(), site.service.queue.depth, site.open_requests) == (504, True, 0, 0)
        site.service.stop()

    asyncio.run(run())


def test_what_is_refused_before_its_body_is_read(directory: Path) -> None:
    """Bodies that came in part take a bounded part of memory: a thousand connections may have sent a megabyte each."""
    limits = Limits(unread_bytes=100_000, body_bytes=1000)

    async def run() -> None:
        site = site_of(directory, limits)
        for name in (b"x-api-key", b"content-type", b"content-encoding"):
            with pytest.raises(Refusal, match=f"The header {name.decode()} may be there once"):
                site.begin(head((name, b"a"), (name, b"b")))
        with pytest.raises(Refusal, match="more than 1000 bytes"):
            site.begin(head((b"content-length", b"1001")))
        assert site.begin(head()) == 1000
        site.hold(60_000)
        with pytest.raises(Refusal, match="Too many large bodies"):
            site.hold(60_000)
        site.service.stop()

    asyncio.run(run())


def test_others_have_a_turn_after_every_long_text_of_a_request(directory: Path) -> None:
    """They were once tokenized in one go: everybody waited a second and more."""
    body = json.dumps({"texts": ["anna paid in paris " * 500] * 64}).encode()

    async def run() -> int:
        site, turns = site_of(directory, Limits()), 0
        asking = asyncio.create_task(site.service.predict(body, time.perf_counter()))
        while not site.open_requests:
            turns += 1
            await asyncio.sleep(0)
        asking.cancel()
        site.service.stop()
        return turns

    assert asyncio.run(run()) >= 63
