"""Prompts of files as requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.load.openai.asking import address_of, prompts_of_file, requests_of, unsent_keys
from workbench.values.errors import ConfigError

CHAT = {"messages": [{"role": "user", "content": "你好"}]}


def written(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return path


def test_a_chat_is_greedy_streamed_and_asks_for_usage(tmp_path: Path) -> None:
    prompts = prompts_of_file(written(tmp_path / "p.jsonl", {**CHAT, "id": 1}, {**CHAT, "max_tokens": 9}, "text"))
    bodies, path, endpoint = requests_of(prompts, "m", "/v1", max_tokens=5, ignore_eos=True, seed=3)

    assert (path, endpoint) == ("/v1/chat/completions", "chat")
    assert bodies[0] == {
        **CHAT,
        **{"model": "m", "max_tokens": 5, "ignore_eos": True, "temperature": 0, "seed": 3, "stream": True},
        "stream_options": {"include_usage": True},
    }
    assert [body["max_tokens"] for body in bodies] == [5, 9, 5]
    assert bodies[2]["messages"] == [{"role": "user", "content": "text"}]
    assert unsent_keys(prompts) == ["id"]


def test_a_prompt_is_a_completion_unless_chats_are_asked_for(tmp_path: Path) -> None:
    prompts = prompts_of_file(written(tmp_path / "p.jsonl", {"prompt": "a", "temperature": 0.7}, {"prompt": [1, 2]}))
    bodies, path, _ = requests_of(prompts, "m", "/api/v1")

    assert path == "/api/v1/completions"
    assert [(body["prompt"], body["max_tokens"], body["temperature"]) for body in bodies] == [
        ("a", 128, 0.7),
        ([1, 2], 128, 0),
    ]
    with pytest.raises(ConfigError, match="prompt 2 is of token ids"):
        requests_of(prompts, "m", "/v1", endpoint="chat")


def test_texts_and_tables_are_prompts_too(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text("text,label\nthree,x\n", encoding="utf-8")

    assert prompts_of_file(tmp_path / "t.txt") == [{"text": "one"}, {"text": "two"}]
    assert prompts_of_file(tmp_path / "t.csv") == [{"text": "three"}]


def test_chats_and_completions_are_not_mixed(tmp_path: Path) -> None:
    prompts = prompts_of_file(written(tmp_path / "p.jsonl", CHAT, {"prompt": "a"}))
    with pytest.raises(ConfigError, match="some prompts are chats"):
        requests_of(prompts, "m", "/v1")
    with pytest.raises(ConfigError, match="prompt 1 has messages"):
        requests_of(prompts, "m", "/v1", endpoint="completions")


def test_a_line_that_is_no_prompt_is_named(tmp_path: Path) -> None:
    for line, why in (
        *((line, "is no prompt") for line in (3, {})),
        ({**CHAT, "prompt": "a"}, "more than one"),
        *(({"messages": messages}, "no list of messages") for messages in ([], [{"content": "no role"}])),
        *(({"prompt": prompt}, "neither a text nor") for prompt in ("", [1, -1], [True])),
        ({"text": 3}, "is no text"),
        *(({**CHAT, "max_tokens": most}, "no number from 1") for most in (0, True, "9" * 100)),
        ({**CHAT, "n": 2}, "more than one answer"),
    ):
        with pytest.raises(ConfigError, match=why) as caught:
            prompts_of_file(written(tmp_path / "p.jsonl", CHAT, line))
        assert "p.jsonl:2" in str(caught.value)
    (tmp_path / "p.jsonl").write_text("\n\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no prompt"):
        prompts_of_file(tmp_path / "p.jsonl")


def test_the_address_may_be_written_with_or_without_its_path() -> None:
    for path, base, endpoint in (
        ("", "/v1", None),
        ("/v1/", "/v1", None),
        ("/openai/v1", "/openai/v1", None),
        ("/v1/chat/completions", "/v1", "chat"),
        ("/v1/completions", "/v1", "completions"),
    ):
        assert address_of(f"http://h:1{path}") == ("http://h:1", base, endpoint)
