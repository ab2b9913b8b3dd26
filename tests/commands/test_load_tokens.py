"""`workbench load --protocol openai` as a user runs it."""

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from tests.commands.running import run
from tests.load.openai.streams import streaming, text_events
from tests.load.servers import delayed, serving
from tests.tiny_texts import write_text_workspace
from workbench.load import read_result
from workbench.values.errors import ConfigError

load = partial(run, "load", MY_KEY="sk-2")


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


@pytest.mark.parametrize("source", ["--data", "--experiment"])
def test_texts_of_a_dataset_are_chats(tmp_path: Path, source: str) -> None:
    experiment = write_text_workspace(tmp_path)
    named = experiment if source == "--experiment" else next((tmp_path / "calibration").glob("*.yaml"))
    with serving(streaming(text_events(1))) as server:
        done = load(
            *(server.url, "--protocol", "openai", "--model", "m", source, named),
            *("--concurrency", 1, "--duration", "0.3s", "--warmup", "0.1s"),
        )

    assert done.exit_code == 0, done.output
    asked = {json.loads(body)["messages"][0]["content"] for body in server.bodies}
    texts = {
        row["text"] for row in csv.DictReader((tmp_path / "data" / "validation.csv").read_text("utf-8").splitlines())
    }
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
