"""A service that is sent what nobody should send answers 4xx, keeps its processes, and answers others meanwhile."""

import contextlib
import random
import resource
from collections.abc import Iterator

import pytest

from tests.serve.attacked import peak_bytes, run_attacks, settled
from tests.serve.attacks import OFTEN, SECRET, SELDOM, attacks, good, inputs_that_swell
from tests.serve.making import Running, make_bundle, running, samples

ATTACKS = 1200
"""`hostile_load.py` sends 30,000."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))  # as little as some systems give
        try:
            bundle = make_bundle(tmp_path_factory.mktemp("bundle"))
            found = stack.enter_context(running(bundle, "--workers", "2"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield found


def errors(service: Running) -> dict[str, float]:
    """kind → how often, as the service counted."""
    counted = samples(service, "workbench_errors_total")
    return {labels.split('"')[1]: times for labels, times in counted.items()}


def test_no_request_needs_memory_beyond_its_own_size(service: Running) -> None:
    """A row of many short strings and a long one was once made an array of long ones: 400 MB from 300 kB."""
    before = peak_bytes(service.process.pid)

    outcome = run_attacks(service.port, [inputs_that_swell(random.Random(0)) for _ in range(3)], clients=1)

    assert outcome.wrong == []
    assert peak_bytes(service.process.pid) < before + 60_000_000


def test_malformed_requests_are_refused_and_leave_nothing_behind(service: Running) -> None:
    run_attacks(service.port, attacks(0, 150))  # buffers and caches get their size
    before = settled(service.process.pid, 0, patience_s=0.5)

    assert len({attack.name for attack in attacks(1, 200)}) >= len(OFTEN + SELDOM)
    known = [(good(), service.predict({"text": "anna paid in paris"}).body)]
    outcome = run_attacks(service.port, attacks(1, ATTACKS), known=known)

    after = settled(service.process.pid, before.files)
    assert outcome.wrong == []
    assert list(outcome.good) == ["right"]
    assert outcome.good["right"] > 10
    assert after.files <= before.files
    assert after.threads <= before.threads
    assert after.worker_pids == before.worker_pids
    assert after.resident_bytes < before.resident_bytes + 20_000_000
    assert after.worker_bytes < before.worker_bytes + 20_000_000
    service.wait_until(lambda: errors(service).get("bad_request", 0) > 10)  # a connection's own refusals come later
    assert errors(service).keys() <= {
        *("not_json", "fields", "inputs", "too_large", "media_type", "method", "not_found", "client_gone", "slow"),
        *("bad_request", "head_too_large"),
    }
    assert not [event for event in service.events() if event["event"] in ("defect", "library", "worker_lost")]
    assert SECRET not in service.log.read_text(encoding="utf-8")


def test_kinds_of_media_that_are_json_are_taken(service: Running) -> None:
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x=y"):
        assert service.predict({"text": "anna"}, **{"Content-Type": kind}).status == 200


def test_characters_of_any_kind_are_a_text(service: Running) -> None:
    for text in (
        "\x00",
        "a\x00b",
        "\u202eabc",
        "👩‍👩‍👧‍👦" * 50,
        "\ufeff",
        "ﬁ",
        "e\u0301" * 500,
        "[CLS] [PAD]",
        "\x7f\x1b[2J",
    ):
        reply = service.predict({"text": text})

        assert reply.status in (200, 422), (text, reply.body)
        if reply.status == 422:
            assert "no token" in reply.body["error"]["message"]
