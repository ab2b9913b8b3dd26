"""`workbench baseline record`: what a server gives becomes a file that judges a bundle, with its answers beside it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import run
from tests.load.kserve.servers import TRITON, over_http, sums
from tests.load.servers import delayed, serving
from tests.tiny_texts import write_text_workspace
from workbench.inputs.answers import read_answers, text_digest
from workbench.shipping.acceptance.baseline import read_baseline
from workbench.values.errors import ConfigError, MeasureError

record = partial(run, "baseline", "record")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = write_text_workspace(tmp_path_factory.mktemp("texts"))
    return experiment.parents[1] / "calibration" / "tiny-texts.yaml"


def test_a_server_becomes_a_baseline_with_intervals_conditions_and_resources(manifest: Path, tmp_path: Path) -> None:
    with over_http(metrics=TRITON) as url:
        done = record(
            *(url, "--data", manifest, "--to", tmp_path / "old.yaml", "--metrics-url", url, "--about", "a test"),
            *("--concurrency", 1, "--concurrency", 3, "--length", 8, "--duration", "2s", "--warmup", "0.1s"),
            *("--answers", 30, "--json"),
        )

    assert done.exit_code == 0, done.output
    found = read_baseline(tmp_path / "old.yaml")
    assert [(load.concurrency, load.length, load.wire) for load in found.loads] == [
        (1, 8, "kserve-v2/binary"),
        (3, 8, "kserve-v2/binary"),
    ]
    for load in found.loads:
        assert load.p50_ms is not None
        assert load.p50_ms.low <= load.p50_ms.high
        assert load.answers is not None
        assert load.answers > 0
    assert found.level == "measured"
    assert found.memory is not None
    assert (found.memory.value, found.memory.of) == (1.5, "device")
    assert found.power is not None
    assert found.power.value == 212.5
    assert "gauges of /metrics, median of" in found.power.source
    assert "closed loops of 1, 3 clients" in found.source
    assert found.limits["top1_change_pp"] == 0.5
    said = json.loads(done.stdout)
    assert said["answers"] == str(tmp_path / "old.npz")
    slow = {sentence for sentence in said["lacks"] if "no P99" in sentence}
    assert ("p99_at_most_percent" not in found.limits) == (len(slow) == 2)


def test_answers_are_those_of_the_very_samples(manifest: Path, tmp_path: Path) -> None:
    with over_http() as url:
        done = record(
            *(url, "--model", "sums", "--data", manifest, "--to", tmp_path / "old.yaml", "--batch", 4),
            *("--concurrency", 1, "--duration", "0.5s", "--warmup", "0.1s", "--answers", 10, "--split", "holdout"),
        )
    assert done.exit_code == 0, done.output

    from workbench.inputs.dataset import read_manifest

    dataset = read_manifest(manifest)
    answers = read_answers(tmp_path / "old.npz")
    texts = dataset.texts("holdout")
    assert texts is not None
    assert len(answers.digests) == 10
    assert "sums" in answers.source
    for place, row in enumerate(answers.rows):
        assert answers.digests[place] == text_digest(texts[row])
    batch = next(iter(dataset.batches("holdout", 10, stop=10)))
    wanted = sums(np.asarray(batch.feeds["input_ids"]), np.asarray(batch.feeds["attention_mask"]))
    at = answers.of([text_digest(texts[int(row)]) for row in batch.indices], batch.indices)
    np.testing.assert_array_equal(answers.outputs["logits"][at], wanted)


def test_limits_of_another_file_are_taken_over_but_for_what_was_not_recorded(manifest: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        "version: 1\nname: n\nsource: s\nloads: [{concurrency: 1, throughput_per_s: 5}]\n"
        "power_w: {value: 3, of: device}\nlimits: {throughput_at_least_percent: 90, power_at_most_percent: 100}\n",
        encoding="utf-8",
    )
    with over_http(binary=False) as url:
        done = record(
            *(url, "--data", manifest, "--to", tmp_path / "old.yaml", "--limits-of", limits, "--answers", 0),
            *("--concurrency", 1, "--duration", "0.4s", "--warmup", "0.1s", "--metrics-url", "http://127.0.0.1:9"),
        )

    assert done.exit_code == 0, done.output
    found = read_baseline(tmp_path / "old.yaml")
    assert found.limits["throughput_at_least_percent"] == 90
    assert "power_at_most_percent" not in found.limits
    assert found.answers is None
    assert "no power: nothing told it" in done.stderr


def test_a_load_that_cannot_be_relied_on_is_not_recorded(manifest: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("loan\n", encoding="utf-8")
    with serving(delayed(0.01, b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}")) as server:
        done = record(
            *(server.url, "--protocol", "predict", "--data", texts, "--to", tmp_path / "old.yaml"),
            *("--concurrency", 2, "--duration", "0.4s", "--warmup", "0.1s"),
        )

    assert isinstance(done.exception, MeasureError)
    assert "not recorded, since" in str(done.exception)
    assert not (tmp_path / "old.yaml").exists()


def test_what_cannot_be_recorded_is_said_with_the_next_step(tmp_path: Path) -> None:
    for asked, says in (
        ("bundle", "no URL of a running server"),
        ("http://example.org", "--host-allowed example.org"),
        ("http://127.0.0.1:9 --model m", "does not answer"),
        ("http://127.0.0.1:9 --split calibration", "none of validation, holdout"),
    ):
        done = record(*asked.split(), "--to", tmp_path / "b.yaml")
        assert isinstance(done.exception, ConfigError)
        assert says in str(done.exception)
