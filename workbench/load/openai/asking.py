"""Before a load: where the API is, which model it has, and one answer of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from workbench.load.http1 import ERROR_KINDS, ProtocolError, asked, body_words, converse, encode_request, only_name
from workbench.load.openai.answer import StreamReader, error_words
from workbench.load.openai.prompts import PATHS, Endpoint
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, MeasureError

_REFUSED = (400, 422)


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
