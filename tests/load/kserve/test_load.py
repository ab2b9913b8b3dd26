"""Servers of the open inference protocol asked and loaded for real, with JSON and with bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.load.kserve.servers import mlserver, over_http, sums
from tests.load.servers import delayed, serving
from tests.tiny_texts import write_text_workspace
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.load import LoadPlan, run_load
from workbench.load.kserve.asking import Asked, ask, requests_of, samples_of
from workbench.load.kserve.served import path_of, served_model
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.service import ServiceLoad


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    experiment = write_text_workspace(tmp_path_factory.mktemp("texts"))
    return read_manifest(experiment.parents[1] / "calibration" / "tiny-texts.yaml")


def check(url: str, dataset: Dataset, wire: str, version: str = "3") -> None:
    """Answers are right for every sample, and a load of them is answered."""
    model = served_model(url, "", version)
    assert model.wire == wire
    seen = 0
    for asked in samples_of(dataset, "validation", model, batch=2, last=True):
        wanted = sums(asked.feeds["input_ids"], asked.feeds["attention_mask"])
        np.testing.assert_array_equal(ask(model, asked)["logits"], wanted)
        seen += len(asked.digests)
    assert seen == dataset.size("validation")
    plan = LoadPlan(
        url=url,
        path=f"{path_of(model.name, model.version)}/infer",
        wire=model.wire,
        model="sums",
        batch=2,
        load=ServiceLoad(concurrency=3),
        duration_s=120.0,
        max_requests=30,
        warmup_s=0.0,
    )
    result = run_load(plan, requests_of(model, samples_of(dataset, "validation", model, batch=2)))
    assert result.statuses == {"200": result.answered}
    assert result.answered > 0
    assert (result.wire, result.batch, result.model) == (wire, 2, "sums")


@pytest.mark.parametrize("binary", [True, False])
def test_a_server_is_asked_and_loaded_with_bytes_where_it_takes_them(dataset: Dataset, binary: bool) -> None:
    with over_http(binary=binary) as url:
        check(url, dataset, "kserve-v2/binary" if binary else "kserve-v2/json")


def test_what_is_not_there_is_named_with_the_servers_own_words(dataset: Dataset) -> None:
    with over_http() as url:
        for name, version, words in (("other", "", "has no model 'other'"), ("sums", "9", "version 9")):
            with pytest.raises(ConfigError, match=words):
                served_model(url, name, version)
        with pytest.raises(ConfigError, match="has no 'ids'; it has input_ids, attention_mask"):
            served_model(url, "sums", "", renamed_inputs={"ids": "input_ids"})
        model = served_model(url, "sums", "")
        one = next(samples_of(dataset, "validation", model))
        wrong = Asked(feeds={"input_ids": one.feeds["input_ids"]}, digests=one.digests)
        with pytest.raises(MeasureError, match=r"400.*expected two"):
            ask(model, wrong)
    with pytest.raises(ConfigError, match="does not answer"):
        served_model("http://127.0.0.1:9", "sums", "")
    with serving(delayed(0)) as server, pytest.raises(ConfigError, match="is no server of the protocol"):
        served_model(server.url, "sums", "")


def test_mlserver_is_asked_and_loaded(tmp_path: Path, dataset: Dataset) -> None:
    with mlserver(tmp_path) as url:  # it has not the extension for binary tensors, and says so
        check(url, dataset, "kserve-v2/json", version="")
