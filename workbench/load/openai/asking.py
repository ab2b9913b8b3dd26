"""Before a load: where the API is, which model it has, prompts as its requests (greedy, streamed, with the usage asked
for), and one answer of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from workbench.load.http1 import ERROR_KINDS, ProtocolError, asked, body_words, converse, encode_request, only_name
from workbench.load.openai.answer import StreamReader, error_words
from workbench.load.requests import MOST_BODIES, bodies_of_file
from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import JsonError, loads, parse_json
from workbench.values.errors import ConfigError, MeasureError

_REFUSED = (400, 422)
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


def address_of(url: str) -> tuple[str, str, Endpoint | None]:
    """(address, path of the API, endpoint) of what users name: with or without '/v1', or an endpoint's whole URL."""
    parts = urlsplit(url)
    base, endpoint = parts.path.rstrip("/"), None
    for name, ending in PATHS.items():  # the chat's ends with the other one
        if base.endswith(ending):
            base, endpoint = base.removesuffix(ending), name
            break
    return parts._replace(path="").geturl(), base or "/v1", endpoint


def only_model(address: str, base: str, api_key: str | None) -> str:
    """The model of a server that has one.

    Raises:
        ConfigError: nobody answers; it has none, several, or does not tell.
    """
    status, body, _ = asked(address, "GET", f"{base}/models", None, bearer(api_key))
    listed = body.get("data") if status == 200 and isinstance(body, dict) else None
    return only_name(listed, "id", f"{base}/models tells none (status {status}): ")


def bearer(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def probed(
    address: str, path: str, bodies: Sequence[Mapping[str, Any]], *, api_key: str | None, timeout_s: float
) -> tuple[list[str], bool]:
    """(the bodies as they are sent, whether the server takes `stream_options`): the first is asked for one token.

    Servers that refuse `stream_options`, which older ones do, are asked without.

    Raises:
        ConfigError: nobody answers, or the request is refused; with the server's words.
        MeasureError: no stream comes, or none that is complete.
    """
    status, words = _asked(address, path, _short(bodies[0]), api_key, timeout_s)
    with_usage = True
    if status in _REFUSED:
        plain, again = _asked(address, path, _short(_without_usage(bodies[0])), api_key, timeout_s)
        if plain == 200:
            status, with_usage = plain, False
        elif plain not in _REFUSED:
            status, words = plain, again
    if status < 0:
        raise MeasureError(f"{address}{path}: {ERROR_KINDS[status]} ({words}).")
    if status != 200:
        raise ConfigError(
            f"{address}{path} answers with status {status}: {words.rstrip('.')}.",
            key="url",
            hint="Look at --model, --endpoint, --max-tokens, --ignore-eos, and at --api-key-env for its key.",
        )
    sent = bodies if with_usage else [_without_usage(body) for body in bodies]
    return [json.dumps(body, ensure_ascii=False) for body in sent], with_usage


def _without_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "stream_options"}


def _short(body: Mapping[str, Any]) -> dict[str, Any]:
    if "min_tokens" in body:
        return dict(body)
    key = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    return {**body, key: 1}


def _asked(address: str, path: str, body: Mapping[str, Any], api_key: str | None, timeout_s: float) -> tuple[int, str]:
    """(status, or what is wrong with the stream; the server's words)."""
    parts = urlsplit(address)
    content = json.dumps(body, ensure_ascii=False).encode()
    try:
        request = encode_request(path, parts.netloc, content, {**bearer(api_key), "Accept": "text/event-stream"})
    except ValueError as error:  # also UnicodeEncodeError
        raise ConfigError("the key cannot stand in a header of HTTP.", key="--api-key-env") from error
    reader = StreamReader()
    try:
        converse(address, request, reader, timeout_s)
    except TimeoutError as error:
        raise MeasureError(f"{address}{path}: no whole answer within {timeout_s:g} s.") from error
    except ProtocolError as error:
        raise MeasureError(f"{address}{path}: no answer of this protocol: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{address} does not answer: {error}.", key="url") from error
    try:
        return reader.status, reader.error or error_words(loads(reader.body_start, once=False))
    except JsonError:
        return reader.status, body_words(reader.body_start)


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
    prompts: Sequence[Mapping[str, Any]],
    model: str,
    base: str,
    *,
    endpoint: Endpoint | None = None,
    max_tokens: int | None = None,
    ignore_eos: bool = False,
    seed: int = 0,
) -> tuple[list[dict[str, Any]], str, Endpoint]:
    """(bodies, path, endpoint). Greedy (temperature 0) unless a prompt's line says otherwise.

    Args:
        base: path below which the API is, such as '/v1'.
        endpoint: None for what the prompts are: messages and texts are chats, a `prompt` is a completion.
        max_tokens: where a prompt's line does not say it; None for `DEFAULT_MAX_TOKENS`.
        ignore_eos: generate all of them, whatever the model says; an extension of vLLM and others.
        seed: of sampling, though nothing is sampled at temperature 0.

    Raises:
        ConfigError: prompts of both endpoints, messages where completions are asked, or no such endpoint or count.
    """
    if max_tokens is not None and not 1 <= max_tokens <= _MOST_TOKENS:
        raise ConfigError(f"{max_tokens} is outside 1 to {_MOST_TOKENS}.", key="--max-tokens")
    if endpoint is not None and endpoint not in get_args(Endpoint):
        raise ConfigError(f"{endpoint!r} is none of auto, chat, completions.", key="--endpoint")
    kinds = {"completions" if "prompt" in prompt else "chat" for prompt in prompts}
    if endpoint is None and len(kinds) > 1:
        raise ConfigError(
            "some prompts are chats and some completions.",
            key="--data",
            hint="Choose one for all: --endpoint chat, or --endpoint completions where none has messages.",
        )
    chosen: Endpoint = endpoint or ("completions" if kinds == {"completions"} else "chat")
    bodies = []
    for number, prompt in enumerate(prompts, 1):
        body = {key: value for key, value in prompt.items() if key in SENT and key not in ("messages", "prompt")}
        plain = prompt.get("prompt", prompt.get("text"))
        if chosen == "chat":
            if "messages" not in prompt and not isinstance(plain, str):
                raise ConfigError(f"prompt {number} is of token ids, which no chat takes.", key="--endpoint, --data")
            body["messages"] = prompt.get("messages", [{"role": "user", "content": plain}])
        elif plain is None:
            raise ConfigError(f"prompt {number} has messages, which are for chats.", key="--endpoint, --data")
        else:
            body["prompt"] = plain
        if "max_completion_tokens" not in body:
            body.setdefault("max_tokens", max_tokens or DEFAULT_MAX_TOKENS)
        if ignore_eos:
            body["ignore_eos"] = True
        body = {"temperature": 0, "seed": seed, **body, "stream": True, "stream_options": {"include_usage": True}}
        bodies.append({"model": model, **body})
    return bodies, base + PATHS[chosen], chosen


def unsent_keys(prompts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of prompts that no server is sent."""
    return sorted({str(key) for prompt in prompts for key in prompt if key not in SENT and key != "text"})


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
