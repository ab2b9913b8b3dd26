"""One real service on loopback: what it answers, what it refuses, what it says about itself."""

import concurrent.futures
from collections.abc import Iterator

import numpy as np
import pytest

from tests.serve.making import LABELS, WORDS, Running, make_bundle, metric, running
from workbench.bundle.golden import preprocessor_of
from workbench.bundle.opened import Bundle, read_bundle
from workbench.targets import open_target
from workbench.values.preprocess import collate, encode
from workbench.values.service import ServiceSettings

KEY = "correct horse"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    service = ServiceSettings(max_batch_size=8, batch_timeout_ms=5.0, workers=2)
    return read_bundle(make_bundle(tmp_path_factory.mktemp("served"), service=service))


@pytest.fixture(scope="module")
def service(bundle: Bundle) -> Iterator[Running]:
    with running(bundle.directory) as found:
        yield found


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(
        make_bundle(tmp_path_factory.mktemp("tagger"), "ner"), "--metrics", "off", WORKBENCH_API_KEY=KEY
    ) as found:
        yield found


def direct(bundle: Bundle, text: str) -> dict[str, float]:
    """What the session gives for this text alone."""
    preprocessor = preprocessor_of(bundle)
    assert preprocessor is not None
    manifest = bundle.manifest
    session = open_target("onnxruntime").open(manifest.artifact, bundle.model_directory, manifest.candidate)
    logits = session.run(collate(preprocessor, encode(preprocessor, [text])))["logits"][0].astype(np.float64)
    session.close()
    scores = np.exp(logits - logits.max())
    return dict(zip(LABELS, (scores / scores.sum()).tolist(), strict=True))


def test_answers_do_not_depend_on_batch_and_bin(bundle: Bundle, service: Running) -> None:
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(WORDS[2:], size=random.integers(1, 20))) for _ in range(60)]
    expected = [direct(bundle, text) for text in texts]

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        alone = [reply.body for reply in pool.map(lambda t: service.predict({"text": t}), texts)]
    together = service.predict({"texts": texts}).body["results"]

    for answers in (alone, together):
        for answer, scores in zip(answers, expected, strict=True):
            assert answer["label"] == max(scores, key=lambda name: scores[name])
            assert answer["scores"] == pytest.approx(scores, abs=2e-6)
    assert metric(service, "workbench_batch_rows_count") < metric(service, "workbench_batch_rows_sum")
    assert all(metric(service, f'workbench_bin_rows_total{{length="{n}"}}') > 0 for n in (4, 8, 16))


def test_a_wrong_request_gets_its_status_and_a_kind(service: Running) -> None:
    json_type, form = {"Content-Type": "application/json"}, {"Content-Type": "application/x-www-form-urlencoded"}
    requests: tuple[tuple[str, str, bytes | None, dict[str, str], int, str], ...] = (
        ("POST", "/predict", b"{", json_type, 400, "not_json"),
        ("POST", "/predict", b"[" * 200_000, json_type, 400, "not_json"),
        ("POST", "/predict", b'{"text": 1}', json_type, 422, "fields"),
        ("POST", "/predict", b"text=a", form, 415, "media_type"),
        ("POST", "/predict", b"{}", {**json_type, "Content-Encoding": "gzip"}, 415, "media_type"),
        ("POST", "/predict", b'{"text": "anna"}', {}, 415, "media_type"),
        ("POST", "/predict", b" " * 3_000_000, json_type, 413, "too_large"),
        ("GET", "/predict", None, {}, 405, "method"),
        ("POST", "/health", b"", {}, 405, "method"),
        ("POST", "/predict", b"{}", {"Host": "evil.example"}, 421, "host"),
        ("GET", "/health", None, {"Host": "evil.example"}, 421, "host"),
        ("GET", "/info", None, {"Host": "127.0.0.1.evil.example:80"}, 421, "host"),
        ("GET", "/health", None, {"Host": ""}, 400, "bad_request"),
        ("GET", "/shutdown", None, {}, 404, "not_found"),
    )
    for method, path, body, headers, status, kind in requests:
        reply = service.request(method, path, body, **headers)
        assert (reply.status, reply.body["error"]["kind"]) == (status, kind), (method, path, headers)
        assert service.predict({"text": "anna"}).status == 200


def test_health_and_info_say_what_is_served(bundle: Bundle, service: Running) -> None:
    health, info = service.health(), service.request("GET", "/info").body

    for path, status in (("/health/live", "live"), ("/health/ready", "ready")):
        reply = service.request("GET", path)
        assert (reply.status, reply.body) == (200, {"status": status})
    assert health.body["status"] == "ok"
    assert [w["state"] for w in health.body["workers"]] == ["ready", "ready"]
    assert info["name"] == "tiny-classification"
    assert info["candidate"]["id"] == bundle.manifest.candidate_id
    assert info["emulated"] is False
    assert info["golden"]["samples"] == 2
    assert (info["service"]["workers"], info["service"]["max_batch_size"]) == (2, 8)
    assert info["figures"]["validation"]


def test_with_a_key_nothing_is_answered_or_told_without_it(tagger: Running) -> None:
    for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": KEY + "é"}):
        assert tagger.predict({"text": "anna"}, **headers).status == 401
        assert tagger.request("GET", "/info", **headers).status == 401
    assert tagger.predict({"text": "anna"}, **{"X-API-Key": KEY}).status == 200
    assert tagger.request("GET", "/info", **{"X-API-Key": KEY}).status == 200
    assert tagger.health().status == 200
    assert tagger.request("GET", "/metrics").status == 404
    assert KEY not in tagger.log.read_text()


def test_only_loopback_is_listened_on(service: Running) -> None:
    addresses = {c.laddr.ip for p in service.family() for c in p.net_connections("inet") if c.status == "LISTEN"}

    assert addresses == {"127.0.0.1"}
