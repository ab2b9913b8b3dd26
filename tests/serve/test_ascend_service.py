"""The service over a bundle for 910B3, on two emulated devices: a worker on each, with files for every batch and bin.

What the emulator itself says (which process holds what on which device, what was left behind) is read beside what the
service says of itself.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.serve.ascend_bundle import LABELS, TEXTS, Made, make_ascend_bundle
from tests.serve.making import Reply, Running, gone, metric, running, samples
from workbench.cann_emulator.state import ProcessUse, processes

PATIENCE_S = 300.0
Held = Callable[[], Sequence[ProcessUse]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_ascend_bundle(tmp_path_factory.mktemp("ascend"))


@pytest.fixture(scope="module")
def service(made: Made) -> Iterator[Running]:
    """Two front ends, too."""
    more = {"CANN_EMULATOR_DEVICES": "2", "CANN_EMULATOR_LEAKS": "error"}
    with running(made.bundle, "--front-ends", "2", "--devices", "all", **more, **made.environment) as started:
        yield started


@pytest.fixture
def held(made: Made, monkeypatch: pytest.MonkeyPatch) -> Held:
    """What processes hold on the devices, by the emulator's own books."""
    monkeypatch.setenv("CANN_EMULATOR_STATE", str(made.state))
    return processes


def devices_of(uses: Sequence[ProcessUse]) -> dict[int, set[int]]:
    """Process → the devices on which it holds memory."""
    return {use.pid: {device for device, found in use.devices.items() if found.hbm_bytes} for use in uses}


def scores(reply: Reply) -> list[dict[str, float]]:
    assert reply.status == 200, reply.body
    return [result["scores"] for result in reply.body["results"]]


def expected(made: Made, text: str) -> dict[str, float]:
    """Softmax of what a session of its own gave for this text alone."""
    logits = made.logits[text].astype(np.float64)
    shares = np.exp(logits - logits.max())
    return dict(zip(LABELS, (shares / shares.sum()).tolist(), strict=True))


def test_answers_are_the_sessions_own_whatever_batch_and_bin_they_fell_into(made: Made, service: Running) -> None:
    before = samples(service, "workbench_bin_rows_total")
    asked = [text for text in TEXTS for _ in range(3)]

    for text, found in zip(asked, scores(service.predict({"texts": asked})), strict=True):
        assert found == pytest.approx(expected(made, text), abs=2e-3)
    for text in TEXTS:
        alone = service.predict({"text": text})
        assert alone.body["scores"] == pytest.approx(expected(made, text), abs=2e-3)

    rows = {k: v - before.get(k, 0.0) for k, v in samples(service, "workbench_bin_rows_total").items()}
    assert rows == {'{length="4"}': 12.0, '{length="16"}': 12.0}
    batches = samples(service, "workbench_batch_rows_bucket")
    assert batches['{le="+Inf"}'] > batches['{le="1.0"}'] > 0, "some ran alone, some together"


def test_every_device_has_a_worker_of_its_own_with_one_context(service: Running, held: Held) -> None:
    pids = service.worker_pids()

    assert devices_of(held()) == {pids[0]: {0}, pids[1]: {1}}
    workers = service.health().body["workers"]
    assert [(w["worker"], w["device"], w["card"]) for w in workers] == [(0, 0, "0"), (1, 1, "1")]


def test_visible_devices_are_used_and_a_batch_larger_than_every_compiled_one_goes_in_turns(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_EMULATOR_STATE", str(tmp_path))
    environment = {**made.environment, "CANN_EMULATOR_STATE": str(tmp_path), "CANN_EMULATOR_DEVICES": "3"}
    arguments = ("--max-batch-size", "7", "--batch-timeout-ms", "50")
    with running(made.bundle, *arguments, ASCEND_RT_VISIBLE_DEVICES="2", **environment) as wide:
        asked = [TEXTS[n % 3] for n in range(7)]

        for text, found in zip(asked, scores(wide.predict({"texts": asked})), strict=True):
            assert found == pytest.approx(expected(made, text), abs=2e-3)

        assert samples(wide, "workbench_batch_rows_bucket")['{le="6.0"}'] == 0, "seven rows in one batch"
        assert devices_of(processes()) == {wide.worker_pids()[0]: {2}}


def test_device_memory_is_in_the_metrics_and_is_what_the_device_says(service: Running, held: Held) -> None:
    name = "workbench_worker_device_memory_bytes"
    told = samples(service, name)
    booked = {use.pid: sum(d.hbm_bytes for d in use.devices.values()) for use in held()}
    for worker, pid in service.worker_pids().items():
        assert 0 < told[f'{{worker="{worker}"}}'] <= booked[pid]


def test_that_the_device_is_emulated_is_said_loudly(service: Running) -> None:
    info = service.request("GET", "/info").body
    started = next(e for e in service.events() if e["event"] == "emulated")

    assert info["emulated"] is True
    assert info["warning"].startswith("EMULATED:")
    assert started["warning"] == info["warning"]
    assert service.predict({"text": TEXTS[0]}).headers["x-workbench-emulated"] == "true"
    assert 'emulated="true"' in "".join(samples(service, "workbench_bundle_info"))


def test_a_killed_worker_frees_its_device_comes_back_there_and_others_are_served(
    made: Made, service: Running, held: Held
) -> None:
    victim, other = (service.worker_pids()[number] for number in (1, 0))
    stop, replies = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            replies.append(service.predict({"text": TEXTS[0]}))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        os.kill(victim, signal.SIGKILL)
        service.wait_until(lambda: victim not in devices_of(held()), PATIENCE_S)
        service.wait_until(lambda: service.worker_pids()[1] != victim, PATIENCE_S)
    finally:
        stop.set()
        asking.join(PATIENCE_S)

    back = service.worker_pids()[1]
    assert devices_of(held()) == {other: {0}, back: {1}}
    assert len(replies) > 3
    assert {reply.status for reply in replies} == {200}
    assert service.health().body["workers"][1]["restarts"] == 1
    assert scores(service.predict({"texts": list(TEXTS)}))[0] == pytest.approx(expected(made, TEXTS[0]), abs=2e-3)


def test_sigterm_answers_what_waits_and_leaves_nothing_on_the_devices(service: Running, held: Held) -> None:
    """The last test of this service: it ends here. CANN_EMULATOR_LEAKS=error makes a process that leaves anything on a
    device say so on its standard error, which is the service's log, even where only reset_device cleaned up."""
    family = service.family()
    replies: list[Reply] = []
    asking = [
        threading.Thread(target=lambda: replies.append(service.predict({"texts": list(TEXTS)}))) for _ in range(4)
    ]
    before = metric(service, "workbench_requests_received_total")
    for one in asking:
        one.start()
    service.wait_until(lambda: metric(service, "workbench_requests_received_total") >= before + 4)

    assert service.end() == 0
    for one in asking:
        one.join(PATIENCE_S)

    assert {reply.status for reply in replies} <= {200, 503}
    assert held() == ()
    assert gone(family)
    assert "[emulated acl] left" not in service.log.read_text()
