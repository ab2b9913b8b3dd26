"""What can be known of a team's server without writing to it."""

from __future__ import annotations

from pathlib import Path

from workbench.tracking.place import place_of, without_password
from workbench.tracking.server import PROBE_S, todo_of, unreachable
from workbench.tracking.store import client_of, mlflow_errors
from workbench.values.errors import ToolchainError


def check_server(workspace: Path) -> str:
    """In words, that the server of tracking and the one of the registry answer to these credentials; '' for none.

    Raises:
        ConfigError: what the environment names is no server.
        ToolchainError: one does not answer, or refuses.
    """
    place = place_of(workspace)
    if not place.server:
        return ""
    for address in dict.fromkeys((place.server, place.registry)):
        with mlflow_errors(todo_of(place), address):
            if why := unreachable(address):
                raise ToolchainError(
                    f"MLflow's server {without_password(address)} failed: {why} (asked for {PROBE_S:g} s). "
                    f"{todo_of(place)}"
                )
    with mlflow_errors(todo_of(place), place.server):
        client = client_of(place)
        client.search_experiments(max_results=1)
        client.search_registered_models(max_results=1)
    registry = "" if place.registry == place.server else f", its registry {without_password(place.registry)}"
    return f"{place.name}{registry} answers to these credentials; runs go there"
