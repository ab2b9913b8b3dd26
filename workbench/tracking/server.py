"""A server of MLflow's far away: whether it answers, how long it is waited for, and its errors in our words."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator

from workbench.tracking.place import TRACKING_URI, Place, without_password
from workbench.values.errors import ToolchainError

_FORBIDDEN = re.compile(r"PERMISSION_DENIED|error code 403")

PROBE_S = 3.0
UPLOAD_S = 600.0
_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
HTTP_ENVIRONMENT = {
    _TIMEOUT: "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""MLflow 3.17 waits 120 s for an answer and asks 7 times more, 14 minutes for one call of a server that hangs; it also
prints a line on stdout for each run. What the user has set stays."""


def unreachable(address: str) -> str:
    """Why a server gives no answer, asked with little patience; '' where it gives one, be it a refusal."""
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    try:
        # a gateway before the server may know no /health; that, too, is an answer
        http_request(  # type: ignore[no-untyped-call]  # MLflow has no types here
            get_default_host_creds(address),  # type: ignore[no-untyped-call]
            "/health",
            "GET",
            timeout=PROBE_S,
            max_retries=0,
            retry_codes=frozenset(),
            raise_on_status=False,
        )
    except (MlflowException, OSError) as error:
        return words(error)
    return ""


def check_reachable(address: str, todo: str) -> None:
    """Raises ToolchainError: it gives no answer."""
    if why := unreachable(address):
        raise ToolchainError(f"MLflow's server {without_password(address)} failed: {why}. {todo}")


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Wait long for an answer, for large files that the server hands on before it answers."""
    before = os.environ.get(_TIMEOUT)
    if before != HTTP_ENVIRONMENT[_TIMEOUT]:
        yield
        return
    os.environ[_TIMEOUT] = f"{UPLOAD_S:.0f}"
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = before


@contextlib.contextmanager
def if_permitted() -> Iterator[list[str]]:
    """Do what tidies up; gives a list that is not empty afterwards where the server does not let this user do it."""
    from mlflow.exceptions import MlflowException

    refused: list[str] = []
    try:
        yield refused
    except MlflowException as error:
        if not _FORBIDDEN.search(str(error)):
            raise
        refused.append(words(error))


def errors_of_stores() -> tuple[type[Exception], ...]:
    """What uploading and downloading raise beside MLflow's own errors, as far as their libraries are loaded."""
    found: list[type[Exception]] = []
    for module, names in (
        ("botocore.exceptions", ("BotoCoreError", "ClientError")),
        ("boto3.exceptions", ("Boto3Error",)),
    ):
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(found)


def words(error: Exception) -> str:
    """One line without passwords: what happened, where that can be told from MLflow's page of text."""
    text = without_password(str(error).strip() or type(error).__name__)
    if isinstance(error, ImportError) and (error.name or "").startswith(("boto3", "botocore")):
        return "its artifacts lie in an object store that clients write to themselves, and boto3 is not installed here"
    if "Connection refused" in text:
        return "the connection was refused"
    if "Name or service not known" in text or "NameResolutionError" in text or "name resolution" in text:
        return "its host's name is not known"
    if "timed out" in text or "timeout" in text.lower():
        return "it gave no answer in time"
    if found := re.search(r"too many (\d{3}) error responses|error code (\d{3})|(\d{3}) (?:Client|Server) Error", text):
        return _status(int(next(filter(None, found.groups()))), text)
    return text.splitlines()[0]


def todo_of(place: Place) -> str:
    return f"Check {TRACKING_URI} and whether the server at {place.name} works."


def _status(code: int, text: str) -> str:
    if code == 401:
        return "it refused the credentials (401; MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN)"
    if code == 403:
        return "it does not permit this to your user (403)"
    said = re.search(r'"message":\s*"([^"]+)"', text)
    return f"it answered {code}" + (f": {said[1]}" if said else "")


class Outage:
    """Whether a server has failed, and when it is asked again: each pause is twice the one before."""

    FIRST_S, LONGEST_S = 30.0, 600.0

    def __init__(self) -> None:
        self.lasts = False
        self._pause_s, self._until = self.FIRST_S, 0.0

    def may_try(self) -> bool:
        return not self.lasts or time.monotonic() >= self._until

    def failed(self) -> bool:
        """True for the first time."""
        first, self.lasts = not self.lasts, True
        self._until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self.LONGEST_S)
        return first

    def ended(self) -> None:
        self.lasts, self._pause_s = False, self.FIRST_S
