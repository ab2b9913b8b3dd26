"""Where runs and versions are kept: the workspace's own `mlruns/`, or the team's server that the environment names.

    MLFLOW_TRACKING_URI     http(s) address of an MLflow server; without it `mlruns/` of the workspace
    MLFLOW_REGISTRY_URI     another server for the Model Registry; without it the same

Names, passwords, tokens and certificates (MLFLOW_TRACKING_USERNAME and so on), and the keys of an object store that
the server lets clients write to themselves, are MLflow's own variables; it reads them where it needs them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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
