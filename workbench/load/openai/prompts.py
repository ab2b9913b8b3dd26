"""Prompts of a file as requests of OpenAI's API: greedy, streamed, with the usage asked for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.load.requests import MOST_BODIES, bodies_of_file
from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import parse_json
from workbench.values.errors import ConfigError

Endpoint = Literal["chat", "completions"]
PATHS: Mapping[Endpoint, str] = {"chat": "/chat/completions", "completions": "/completions"}
DEFAULT_MAX_TOKENS = 128
_MOST_TOKENS = 1_000_000
_MOST_FILE_BYTES = 1 << 33
_MOST_BYTES = 1 << 30
SENT = frozenset(
    (
        *("messages", "prompt", "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop"),
        *("stop_token_ids", "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty"),
        *("repetition_penalty", "logit_bias", "tools", "tool_choice", "response_format", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message", "add_special_tokens", "reasoning_effort", "user"),
    )
)
"""Keys of a line that go to the server as they are; others, such as an id, stay here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What is asked of every prompt.

    Attributes:
        endpoint: None for what the prompts are: messages and texts are chats, a `prompt` is a completion.
        max_tokens: where a prompt's line does not say it; None for `DEFAULT_MAX_TOKENS`.
        ignore_eos: generate all of them, whatever the model says; an extension of vLLM and others.
        seed: of sampling, though nothing is sampled at temperature 0.
    """

    endpoint: Endpoint | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not 1 <= self.max_tokens <= _MOST_TOKENS:
            raise ConfigError(f"{self.max_tokens} is outside 1 to {_MOST_TOKENS}.", key="--max-tokens")
        if self.endpoint is not None and self.endpoint not in get_args(Endpoint):
            raise ConfigError(f"{self.endpoint!r} is none of auto, chat, completions.", key="--endpoint")


def prompts_of_file(path: Path) -> list[dict[str, Any]]:
    """The prompts of a file, at most 10 000: JSON lines (`messages`, `prompt` or `text`, with `max_tokens` and other
    keys of a request), or texts as `bodies_of_file` reads them.

    Raises:
        ConfigError: with the line that is no prompt, or more than 1 GiB of them.
    """
    if path.suffix not in (".jsonl", ".json"):
        return prompts_of_bodies(bodies_of_file(path), path)
    found: list[dict[str, Any]] = []
    size = 0
    with open_lines(path, limit_bytes=_MOST_FILE_BYTES) as lines:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        for number, line in itertools.islice(numbered, MOST_BODIES):
            found.append(_prompt(parse_json(line, file=path, line=number), path, number))
            size += len(line)
            if size > _MOST_BYTES:
                raise ConfigError(
                    f"the prompts are larger than {_MOST_BYTES} bytes.", file=path, line=number, key="--data"
                )
    if not found:
        raise ConfigError("holds no prompt.", file=path, key="--data")
    return found


def prompts_of_bodies(bodies: Sequence[str], path: Path | None) -> list[dict[str, Any]]:
    """Requests of our own service that hold a text, as prompts.

    Raises:
        ConfigError: one holds words or arrays.
    """
    values = [json.loads(body) for body in bodies]
    if not all("text" in value for value in values):
        raise ConfigError(
            "holds something else than texts; a language model is asked with texts.", file=path, key="--data"
        )
    return [{"text": value["text"]} for value in values]


def requests_of(
    prompts: Sequence[Mapping[str, Any]], asked: Generation, model: str, base: str
) -> tuple[list[dict[str, Any]], str, Endpoint]:
    """(bodies, path, endpoint). Greedy (temperature 0) unless a prompt's line says otherwise.

    Args:
        base: path below which the API is, such as '/v1'.

    Raises:
        ConfigError: prompts of both endpoints, or messages where completions are asked.
    """
    kinds = {"completions" if "prompt" in prompt else "chat" for prompt in prompts}
    if asked.endpoint is None and len(kinds) > 1:
        raise ConfigError(
            "some prompts are chats and some completions.",
            key="--data",
            hint="Choose one for all: --endpoint chat, or --endpoint completions where none has messages.",
        )
    endpoint = asked.endpoint or ("completions" if kinds == {"completions"} else "chat")
    bodies = [_body(prompt, endpoint, asked, model, number) for number, prompt in enumerate(prompts, 1)]
    return bodies, base + PATHS[endpoint], endpoint


def unsent_keys(prompts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of prompts that no server is sent."""
    return sorted({str(key) for prompt in prompts for key in prompt if key not in SENT and key != "text"})


def _body(prompt: Mapping[str, Any], endpoint: Endpoint, asked: Generation, model: str, number: int) -> dict[str, Any]:
    body = {key: value for key, value in prompt.items() if key in SENT and key not in ("messages", "prompt")}
    plain = prompt.get("prompt", prompt.get("text"))
    if endpoint == "chat":
        if "messages" not in prompt and not isinstance(plain, str):
            raise ConfigError(f"prompt {number} is of token ids, which no chat takes.", key="--endpoint, --data")
        body["messages"] = prompt.get("messages", [{"role": "user", "content": plain}])
    elif plain is None:
        raise ConfigError(f"prompt {number} has messages, which are for chats.", key="--endpoint, --data")
    else:
        body["prompt"] = plain
    if "max_completion_tokens" not in body:
        body.setdefault("max_tokens", asked.max_tokens or DEFAULT_MAX_TOKENS)
    if asked.ignore_eos:
        body["ignore_eos"] = True
    body.setdefault("temperature", 0)
    body.setdefault("seed", asked.seed)
    return {"model": model, **body, "stream": True, "stream_options": {"include_usage": True}}


def _prompt(value: Any, path: Path, number: int) -> dict[str, Any]:
    """A line's prompt, checked as far as servers' answers would be hard to understand."""
    hint = 'Write {"messages": [{"role": "user", "content": "…"}], "max_tokens": 128}, or {"prompt": "…"}.'

    def wrong(rule: str, key: str) -> ConfigError:
        return ConfigError(rule, file=path, line=number, key=key, hint=hint)

    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict) or sum(name in value for name in ("messages", "prompt", "text")) != 1:
        raise wrong("is no prompt, or more than one.", "--data")
    messages, prompt, text = value.get("messages", [{"role": ""}]), value.get("prompt", "…"), value.get("text", "…")
    listed = isinstance(messages, list) and all(
        isinstance(each, dict) and isinstance(each.get("role"), str) for each in messages
    )
    if not (messages and listed):
        raise wrong("is no list of messages with a role each.", "messages")
    ids = isinstance(prompt, list) and all(type(each) is int and each >= 0 for each in prompt)
    if not (prompt and (ids or isinstance(prompt, str))):
        raise wrong("is neither a text nor a list of token ids.", "prompt")
    if not (text and isinstance(text, str)):
        raise wrong("is no text.", "text")
    for key in ("max_tokens", "max_completion_tokens"):
        most = value.get(key, 1)
        if type(most) is not int or not 1 <= most <= _MOST_TOKENS:
            raise wrong(f"{str(most)[:40]} is no number from 1 to {_MOST_TOKENS}.", key)
    for key in ("n", "best_of"):
        if value.get(key, 1) != 1:
            raise wrong("more than one answer to a prompt: times per token would mix them.", key)
    return value
