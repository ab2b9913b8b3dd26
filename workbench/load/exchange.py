"""One question to a server over HTTP, beside a load: its metadata, a first answer. Within bounds of size and time."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, MeasureError

MOST_ANSWER_BYTES = 256 << 20
_TIMEOUT_S = 30.0


def exchange(
    url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float = _TIMEOUT_S
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers by their lower-cased names, body).

    Raises:
        MeasureError: more than `MOST_ANSWER_BYTES`.
        OSError, http.client.HTTPException: nobody answers, or not with HTTP.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout_s)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        content = answer.read(MOST_ANSWER_BYTES + 1)
        if len(content) > MOST_ANSWER_BYTES:
            raise MeasureError(f"{url}{path} answers with more than {MOST_ANSWER_BYTES} bytes.")
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content
    finally:
        connection.close()


def asked(
    url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, key: str = "url"
) -> tuple[int, Any, bytes]:
    """(status, the body as JSON, of equal keys the last, None where it is none; the body).

    Raises:
        ConfigError: nobody answers at what `key` names.
    """
    try:
        status, _, content = exchange(url, method, path, body, headers)
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(f"{url} does not answer: {error}.", key=key) from error
    try:
        return status, loads(content, once=False), content
    except JsonError:
        return status, None, content


def body_words(content: bytes) -> str:
    """The beginning of an answer's body, for an error."""
    return " ".join(content[:300].decode("utf-8", "replace").split()) or "nothing"
