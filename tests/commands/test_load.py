"""`workbench load`: what it prints, keeps and refuses, at real servers, a real service, and streams of tokens."""

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import run
from tests.load.openai.streams import streaming, text_events
from tests.load.servers import delayed, serving
from tests.tiny_texts import write_text_workspace
from workbench.bundle.write import BundleContents, write_bundle
from workbench.load import read_result
from workbench.values.errors import ConfigError

BASELINE = """
version: 1
name: another platform
source: a test
loads: [{concurrency: 4, throughput_per_s: 100, p99_ms: 500}]
limits: {throughput_at_least_percent: 80, p99_at_most_percent: 120}
"""

load = partial(run, "load", MY_KEY="sk-2")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("loan pay\ndue\n", encoding="utf-8")
    return tmp_path / "texts.txt"


def test_a_url_is_loaded_and_the_result_kept(texts: Path, tmp_path: Path) -> None:
    with serving(delayed(0.01)) as server:
        done = load(
            *(server.url, "--concurrency", 4, "--duration", "1s", "--warmup", "0.2s", "--data", texts),
            *("--to", tmp_path / "out"),
        )

    assert done.exit_code == 0, done.output
    for word in ("closed loop", "throughput", "latency P50", "latency P99", "answered", "client"):
        assert word in done.stdout
    kept = read_result(tmp_path / "out" / "load-closed-4.json")
    assert kept.times == "times-closed-4.npz"
    with np.load(tmp_path / "out" / kept.times) as times:
        assert ((times["outcome"] == 200) & (times["intended_s"] >= 0.2)).sum() >= kept.answered > 0
    assert {json.loads(b)["text"] for b in server.bodies} == {"loan pay", "due"}


def test_the_exit_code_says_whether_a_criterion_failed(texts: Path, tmp_path: Path) -> None:
    for published, code, outcome in ((100, 0, "passed"), (1_000_000, 1, "failed")):
        (tmp_path / "b.yaml").write_text(BASELINE.replace(": 100,", f": {published},"), encoding="utf-8")
        with serving(delayed(0.001)) as server:
            done = load(
                *(server.url, "--concurrency", 4, "--duration", "1.5s", "--warmup", "0.2s", "--data", texts, "--json"),
                *("--baseline", tmp_path / "b.yaml"),
            )

        said = json.loads(done.stdout)
        assert len(said["loads"]) == 1, "one load covers both conditions of this baseline"
        rows = {c["name"]: c["outcome"] for c in said["verdict"]["criteria"]}
        assert (rows["throughput"], done.exit_code) == (outcome, code)


def test_every_request_of_a_trace_counts_and_a_log_begins_with_its_first_line(texts: Path, tmp_path: Path) -> None:
    for times, count in (("0\n0.1\n0.1\n0.4\n", 4), ("1795350000.25\n1795350000.35\n1795350000.45\n", 3)):
        (tmp_path / "trace.txt").write_text(times, encoding="utf-8")
        with serving(delayed(0.001)) as server:
            done = load(server.url, "--trace", tmp_path / "trace.txt", "--data", texts, "--json")

        (result,) = json.loads(done.stdout)["loads"]
        assert result["requests"] == result["answered"] == count


def test_what_cannot_be_loaded_is_said_with_the_next_step(texts: Path, tmp_path: Path) -> None:
    trace, own = tmp_path / "trace.txt", ("http://127.0.0.1:1", "--data", texts)
    trace.write_text("0.1\n0.05\n")
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        (own[:1], "does not say what to ask"),
        (("http://example.org", "--data", texts), "--host-allowed example.org"),
        ((*own, "--rate", 5, "--concurrency", 5), "more than one kind of load"),
        ((*own, "--workers", 2), "is for a bundle"),
        ((*own, "--duration", "soon"), "--duration"),
        ((*own, "--trace", texts), "is no time"),
        ((*own, "--trace", trace), f"{trace}:2: '0.05' comes before 0.1."),
        ((*own, "--duration", "0.2s", "--warmup", "0.1s"), "gave no answer at all"),
    )
    for arguments, says in cases:
        done = load(*arguments)
        assert isinstance(done.exception, ConfigError)
        assert says in str(done.exception)


def test_a_bundle_is_served_loaded_and_stopped(
    contents: BundleContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_API_KEY", "open sesame")
    bundle = write_bundle(tmp_path / "bundle", contents)

    done = load(bundle, "--concurrency", 8, "--duration", "1s", "--warmup", "0.3s", "--max-batch-size", 4, "--json")

    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["loads"]
    assert result["statuses"] == {"200": result["requests"]}
    assert 1 < result["server"]["mean_batch"] <= 4
    assert result["processes"]["processes"] >= 2
    assert "open sesame" not in done.output


# --- streams of tokens --------------------------------------------------------------------------------------------


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    (tmp_path / "p.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9, "id": 1}\n"bye"\n', encoding="utf-8"
    )
    return tmp_path / "p.jsonl"


def test_a_stream_is_loaded_printed_and_kept(prompts: Path, tmp_path: Path) -> None:
    with serving(streaming(text_events(4), 0.01, 0.005)) as server:
        done = load(
            *(f"{server.url}/v1", "--protocol", "openai", "--model", "m", "--data", prompts, "--concurrency", 2),
            *("--duration", "1s", "--warmup", "0.2s", "--max-tokens", 5, "--ignore-eos", "--seed", 4),
            *("--ttft-ms", 60_000, "--tpot-ms", 60_000, "--latency-ms", 60_000),
            *("--api-key-env", "MY_KEY", "--to", tmp_path / "out"),
        )

    assert done.exit_code == 0, done.output
    for words in ("openai/chat, model m; 2 prompts", "first token", "per token", "tokens/s", "by the server's usage"):
        assert words in done.stdout
    assert "100.0 %" in done.stdout
    assert "not sent: id" in done.stderr
    kept = read_result(tmp_path / "out" / "load-closed-2.json")
    assert kept.wire == "openai/chat"
    assert kept.tokens is not None
    assert kept.tokens.output_tokens == 4 * kept.answered > 0
    assert kept.tokens.goodput is not None
    assert kept.tokens.goodput.limits.ttft_ms == 60_000
    probe, *sent = [json.loads(body) for body in server.bodies]
    assert probe["max_tokens"] == 1
    assert {(b["max_tokens"], b["ignore_eos"], b["temperature"], b["seed"]) for b in sent} == {
        (9, True, 0, 4),
        (5, True, 0, 4),
    }
    assert all(b"POST /v1/chat/completions " in head and b"Bearer sk-2" in head for head in server.heads)
    assert not any(b"X-API-Key" in head for head in server.heads)


def test_texts_of_a_dataset_are_chats(tmp_path: Path) -> None:
    experiment = write_text_workspace(tmp_path)
    (manifest,) = (tmp_path / "calibration").glob("*.yaml")
    rows = csv.DictReader((tmp_path / "data" / "validation.csv").read_text("utf-8").splitlines())
    texts = {row["text"] for row in rows}
    for source in (("--data", manifest), ("--experiment", experiment)):
        with serving(streaming(text_events(1))) as server:
            done = load(
                *(server.url, "--protocol", "openai", "--model", "m", *source),
                *("--concurrency", 1, "--duration", "0.3s", "--warmup", "0.1s"),
            )
        assert done.exit_code == 0, done.output
        asked = {json.loads(body)["messages"][0]["content"] for body in server.bodies}
        assert asked
        assert asked <= texts


def test_what_means_nothing_beside_streams_is_refused(prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("version: 1\n", encoding="utf-8")
    openai = ("--protocol", "openai", "--model", "m")
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        ((*openai, "--length", 5), "one prompt of its own length"),
        ((*openai, "--batch", 5), "one prompt of its own length"),
        ((*openai, "--endpoint", "embeddings", "--data", prompts), "none of auto, chat, completions"),
        ((*openai, "--ttft-ms", 0), "is no limit"),
        (openai, "does not say what to ask"),
        (("--max-tokens", 5), "is for --protocol openai"),
        (("--ttft-ms", 5), "is for --protocol openai"),
        ((*openai, "--data", prompts, "--baseline", tmp_path / "b.yaml"), "not of tokens"),
    )
    with serving(delayed(0)) as server:
        for options, words in cases:
            done = load(server.url, *options)
            assert isinstance(done.exception, ConfigError)
            assert words in str(done.exception)
    for target, words in (
        ("https://127.0.0.1:1/v1", "no address of a service"),
        (tmp_path, "a bundle is served by our own service"),
    ):
        assert words in str(load(target, *openai, "--data", prompts).exception)
    done = run("baseline", "record", "http://127.0.0.1:1", "--to", tmp_path / "x.yaml", "--protocol", "openai")
    assert "a baseline is of a classifier" in str(done.exception)
