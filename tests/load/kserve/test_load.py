"""Servers of the open inference protocol asked and loaded for real: over HTTP with JSON and bytes, over gRPC."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tests.load.kserve.servers import mlserver, over_grpc, over_http, sums
from tests.load.servers import delayed, serving
from tests.tiny_texts import write_text_workspace
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.load import LoadPlan, LoadResult, run_load
from workbench.load.kserve.asking import Asked, open_asking, requests_of, samples_of, served_model, wire_of
from workbench.load.kserve.served import path_of
from workbench.load.plan import Wire
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.service import ServiceLoad


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    experiment = write_text_workspace(tmp_path_factory.mktemp("texts"))
    return read_manifest(experiment.parents[1] / "calibration" / "tiny-texts.yaml")


def check(url: str, dataset: Dataset, tensors: str, batch: int = 2) -> Wire:
    """Answers are right for every sample; returns the wire."""
    model = served_model(url, "sums", "")
    wire = wire_of(model, tensors)  # type: ignore[arg-type]  # a parameter
    seen = 0
    with open_asking(model, wire) as ask:
        for asked in samples_of(dataset, "validation", model, batch=batch, last=True):
            logits = ask(asked)["logits"]
            wanted = sums(asked.feeds["input_ids"], asked.feeds["attention_mask"])
            np.testing.assert_array_equal(logits, wanted)
            seen += len(asked.digests)
    assert seen == dataset.size("validation")
    return wire


def load(url: str, dataset: Dataset, wire: Wire, *, clients: int = 3, batch: int = 2) -> LoadResult:
    model = served_model(url, "sums", "")
    requests = requests_of(model, samples_of(dataset, "validation", model, batch=batch), wire)
    plan = LoadPlan(
        url=url,
        path=f"{path_of('sums', '')}/infer",
        wire=wire,
        model="sums",
        batch=batch,
        load=ServiceLoad(concurrency=clients),
        duration_s=120.0,
        max_requests=30,
        warmup_s=0.0,
    )
    return run_load(plan, requests)


@pytest.mark.parametrize("tensors", ["json", "binary"])
def test_a_server_over_http_is_asked_and_loaded(dataset: Dataset, tensors: str) -> None:
    with over_http() as url:
        wire = check(url, dataset, tensors)
        result = load(url, dataset, wire)

    assert wire == f"kserve-v2/{tensors}"
    assert result.statuses == {"200": result.answered}
    assert result.answered > 0
    assert (result.wire, result.batch, result.model) == (wire, 2, "sums")


def test_bytes_are_sent_where_the_server_says_it_takes_them() -> None:
    for binary, wire in ((True, "kserve-v2/binary"), (False, "kserve-v2/json")):
        with over_http(binary=binary) as url:
            assert wire_of(served_model(url, "", "3"), "auto") == wire


def test_a_server_over_grpc_is_asked_and_loaded(dataset: Dataset) -> None:
    for raw in (False, True):
        with over_grpc(raw=raw) as url:
            assert check(url, dataset, "auto") == "kserve-v2/grpc"
            result = load(url, dataset, "kserve-v2/grpc") if raw else None

    assert result is not None
    assert result.statuses == {"200": result.answered}
    assert result.answered > 0
    assert result.event_loop == "asyncio"


def test_an_error_over_grpc_is_a_status_and_not_a_lost_connection(dataset: Dataset) -> None:
    with over_grpc() as url:
        model = served_model(url, "sums", "")
        one = next(samples_of(dataset, "validation", model))
        wrong = Asked(feeds={"input_ids": one.feeds["input_ids"]}, digests=one.digests)
        with (
            open_asking(model, "kserve-v2/grpc") as ask,
            pytest.raises(MeasureError, match="INVALID_ARGUMENT: expected"),
        ):
            ask(wrong)
        requests = requests_of(model, [wrong], "kserve-v2/grpc")
        load_of_two = ServiceLoad(concurrency=2)
        plan = LoadPlan(url=url, wire="kserve-v2/grpc", load=load_of_two, max_requests=20, warmup_s=0.0)
        result = run_load(plan, requests)

    assert set(result.statuses) == {"400"}
    assert not result.reliable


def test_a_server_over_grpc_that_goes_away_loses_connections_and_nothing_hangs(dataset: Dataset) -> None:
    asked = threading.Event()
    with over_grpc(asked=asked) as url:
        model = served_model(url, "sums", "")
        requests = requests_of(model, samples_of(dataset, "validation", model), "kserve-v2/grpc")
        plan = LoadPlan(
            url=url,
            wire="kserve-v2/grpc",
            load=ServiceLoad(concurrency=2),
            duration_s=2.0,
            warmup_s=0.0,
            timeout_s=0.5,
        )
        found: list[LoadResult] = []
        thread = threading.Thread(target=lambda: found.append(run_load(plan, requests)))
        thread.start()
        assert asked.wait(60)
    thread.join(60)

    assert found[0].errors
    assert set(found[0].statuses) <= {"200", "499"}, "what it cancels itself has a status"
    assert not found[0].reliable


def test_what_is_not_there_is_named_with_the_servers_own_words(dataset: Dataset) -> None:
    with over_http() as url:
        for name, version, words in (("other", "", "has no model 'other'"), ("sums", "9", "version 9")):
            with pytest.raises(ConfigError, match=words):
                served_model(url, name, version)
        model = served_model(url, "sums", "")
        one = next(samples_of(dataset, "validation", model))
        wrong = Asked(feeds={"input_ids": one.feeds["input_ids"]}, digests=one.digests)
        with open_asking(model, "kserve-v2/json") as ask, pytest.raises(MeasureError, match=r"400.*expected two"):
            ask(wrong)
    with pytest.raises(ConfigError, match="does not answer"):
        served_model("http://127.0.0.1:9", "sums", "")
    with serving(delayed(0)) as server, pytest.raises(ConfigError, match="is no server of the protocol"):
        served_model(server.url, "sums", "")


def test_mlserver_is_asked_and_loaded_over_http_and_grpc(tmp_path: Path, dataset: Dataset) -> None:
    with mlserver(tmp_path) as urls:
        # it has not the extension for binary tensors, and says so
        for url, expected in zip(urls, ("kserve-v2/json", "kserve-v2/grpc"), strict=True):
            wire = check(url, dataset, "auto")
            result = load(url, dataset, wire)

            assert wire == expected
            assert result.statuses == {"200": result.answered}
            assert result.answered > 0
