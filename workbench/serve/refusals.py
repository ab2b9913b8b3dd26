"""Every way a request can end without an answer, and what the client is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "not_json": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method": 405,
    "slow": 408,
    "too_large": 413,
    "media_type": 415,
    "host": 421,
    "fields": 422,
    "inputs": 422,
    "head_too_large": 431,
    "internal": 500,
    "overloaded": 503,
    "starting": 503,
    "draining": 503,
    "worker_lost": 503,
    "timeout": 504,
}
"""Kind of error → HTTP status. The kinds are a closed set: they are a label of the metrics."""


@dataclass(slots=True, eq=False)
class Refusal(Exception):
    """A request ends here; `message` is for its client and may say where in the request, never what stood there.

    Attributes:
        retry_after_s: when another try may succeed.
        allow: methods that the path knows.
        close: the connection cannot be used again, as the body was not read.
    """

    kind: str
    message: str
    retry_after_s: int | None = None
    allow: str | None = None
    close: bool = False

    def answer(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and content of what its client is told."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", str(self.retry_after_s).encode()))
        if self.allow is not None:
            headers.append((b"allow", self.allow.encode()))
        content = {"error": {"kind": self.kind, "message": self.message}}
        return STATUS[self.kind], headers, json.dumps(content).encode()


def overloaded(waiting: int, limit: int, retry_after_s: int) -> Refusal:
    """Of samples that find no room in the queue."""
    return Refusal("overloaded", f"{waiting} samples wait already; {limit} may.", retry_after_s)
