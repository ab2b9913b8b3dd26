"""Where runs and versions are kept: the workspace's own `mlruns/`, or the team's server that the environment names.

    MLFLOW_TRACKING_URI     http(s) address of an MLflow server; without it `mlruns/` of the workspace
    MLFLOW_REGISTRY_URI     another server for the Model Registry; without it the same

Names, passwords, tokens and certificates (MLFLOW_TRACKING_USERNAME and so on), and the keys of an object store that
the server lets clients write to themselves, are MLflow's own variables; it reads them where it needs them.

A server far away: whether it answers, how long it is waited for, and its errors in our words.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.values.errors import ConfigError

TRACKING_URI, REGISTRY_URI = "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Attributes:
    store: `mlruns/` of the workspace, whether or not anything is kept there.
    server, registry: addresses; '' for the store's own database.
    """

    store: Path
    server: str = ""
    registry: str = ""

    @property
    def database(self) -> Path:
        return self.store / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        return self.store / "artifacts"

    @property
    def name(self) -> str:
        """For messages, without the password that an address may hold."""
        return without_password(self.server) or str(self.database)


def place_of(workspace: Path, environment: Mapping[str, str] | None = None) -> Place:
    """Where this environment wants runs of a workspace to be kept.

    Raises:
        ConfigError: at an address that is no server's.
    """
    given = os.environ if environment is None else environment
    server, registry = (given.get(name, "").strip().rstrip("/") for name in (TRACKING_URI, REGISTRY_URI))
    place = Place(store=workspace.resolve() / "mlruns", server=server, registry=registry or server)
    if server == f"sqlite:///{place.database}":
        return Place(store=place.store)
    for name, address in ((TRACKING_URI, server), (REGISTRY_URI, registry)):
        if address and not address.startswith(("http://", "https://")):
            raise ConfigError(
                f"{without_password(address)!r} is no address of an MLflow server.",
                key=name,
                hint="Write http://HOST:PORT or https://HOST, or unset it: runs are then kept in the workspace's "
                "mlruns/. A database is served by `mlflow server --backend-store-uri`.",
            )
    if registry and not server:
        raise ConfigError(
            f"it is set, {TRACKING_URI} is not: versions in a shared registry would point to bundles on this machine.",
            key=REGISTRY_URI,
            hint=f"Set {TRACKING_URI} as well, or unset {REGISTRY_URI}.",
        )
    return place


def without_password(text: str) -> str:
    return _USER_INFO.sub("", text)


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


def _status(code: int, text: str) -> str:
    if code == 401:
        return "it refused the credentials (401; MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN)"
    if code == 403:
        return "it does not permit this to your user (403)"
    said = re.search(r'"message":\s*"([^"]+)"', text)
    return f"it answered {code}" + (f": {said[1]}" if said else "")
