"""The way into MLflow's UI: addresses of its pages, the view they open with, and the command that serves it."""

from __future__ import annotations

import json
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.evaluation.sweep_folders import current_journal
from workbench.tracking.run import sweep_id_of
from workbench.tracking.server import Place, place_of, without_password
from workbench.tracking.store import (
    ENVIRONMENT,
    check_database,
    client_of,
    find_runs,
    follow_move,
    mlflow_errors,
    model_of,
)
from workbench.values.errors import ToolchainError
from workbench.values.metrics import METRICS, shown_in

if TYPE_CHECKING:
    from mlflow import MlflowClient

HOST, PORT = "127.0.0.1", 5000
LOCAL = f"http://{HOST}:{PORT}"
"""Where `workbench ui` serves the workspace's store."""

VIEW = "workbench"
VIEW_TAGS = ("evidence", "same")
"""What is on the front or recommended is marked in the name; the UI puts tags last, and five of them out of sight."""


def links_of(workspace: Path, experiment_name: str, host: str = HOST, port: int = PORT) -> list[str]:
    """Links into the last sweep of an experiment, from what is in the store; none when nothing was logged.

    Of a server's sweeps, the one that this workspace made.

    Raises:
        ToolchainError: the store cannot be read, or the server does not answer.
        ConfigError: what the environment names is no server.
    """
    place = place_of(workspace)
    if not place.server:
        if not place.database.exists():
            return []
        check_database(place.database)
    with mlflow_errors(place):
        journal = current_journal(workspace, experiment_name) if place.server else None
        sweep_id = "" if journal is None else sweep_id_of(journal)
        base = "" if place.server else f"http://{host}:{port}"
        return links_in(client_of(place), place, experiment_name, sweep_id, base)


def links_in(client: MlflowClient, place: Place, experiment_name: str, sweep_id: str = "", base: str = "") -> list[str]:
    """What each address shows, and the address: all candidates, the best of the front beside the baseline, the Pareto
    page, and the bundles, for what there is. Call it inside `mlflow_errors`.

    Args:
        sweep_id: the sweep that is meant; the last one when ''.
        base: address of the UI; that of the server, or of `workbench ui`, when ''.
    """
    experiment = client.get_experiment_by_name(experiment_name)
    if experiment is None:
        return []
    here = f"{base or without_password(place.server) or LOCAL}/#"
    at = f"{here}/experiments/{experiment.experiment_id}/runs"
    # Without `workflowType` the UI opens on traces and token usage, as for a language model's application.
    learning = {"workflowType": "machine_learning"}
    found = [f"all candidates:  {at}?{_quoted({**learning, 'viewStateShareKey': VIEW})}"]
    mine = f" and tags.sweep = '{sweep_id}'" if sweep_id else ""
    sweeps = find_runs(client, experiment.experiment_id, f"tags.kind = 'sweep'{mine}")
    if sweeps:
        last = max(sweeps, key=lambda run: run.info.start_time)
        chosen, best = f"tags.sweep = '{last.data.tags['sweep']}'", "metrics.latency_p50_ms ASC"
        front = find_runs(client, experiment.experiment_id, f"{chosen} and tags.pareto = 'true'", order=best)
        front.sort(key=lambda run: run.data.tags.get("recommended") in (None, "false"))
        floats = find_runs(client, experiment.experiment_id, f"{chosen} and tags.baseline = 'true'")
        # three of the front, the first of them recommended, and the float baseline, against which all is meant
        compared = list(dict.fromkeys(run.info.run_id for run in (*front[:3], *floats[:1])))
        if len(compared) > 1:
            # MLflow 3.17 reads this query by position: runs first, experiments second.
            runs = {"runs": json.dumps(compared), "experiments": json.dumps([experiment.experiment_id])}
            found.append(f"front compared:  {here}/compare-runs?{_quoted({**runs, **learning})}")
        found.append(f"Pareto page:     {at}/{last.info.run_id}/artifacts/pareto.html?{_quoted(learning)}")
    if model_of(client, experiment_name) is not None:
        ui, name = base or without_password(place.registry) or LOCAL, urllib.parse.quote(experiment_name)
        found.append(f"bundles:         {ui}/#/models/{name}?{_quoted(learning)}")
    return found


def ui_command(workspace: Path, host: str = HOST, port: int = PORT) -> tuple[list[str], dict[str, str]]:
    """The command that serves the UI on this workspace's store, and what to add to its environment.

    Raises:
        ToolchainError: there is no store yet, or it cannot be read, or not written after it was moved.
    """
    database = workspace / "mlruns" / "mlflow.db"
    if not database.exists():
        raise ToolchainError(f"{database} does not exist: nothing was logged here. Run a sweep first.")
    check_database(database)
    follow_move(database)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{database.resolve()}"]
    return [*command, "--host", host, "--port", str(port), "--workers", "1"], dict(ENVIRONMENT)


def save_view(client: MlflowClient, experiment_id: str, order: str, *, users: bool = False) -> None:
    """Save the list of candidates as a shared view: which runs, which columns, which order.

    By default the UI shows names and durations, with every metric out of sight to the right. The form of the tag is
    that of MLflow 3.17's own "share this view"; another version that does not know it shows its default list.

    Args:
        users: show whose runs they are.
        order: metric by which runs are sorted, best first; a column of its own where the view lacks it.
    """
    shown = dict.fromkeys((order, f"holdout_{order}", *shown_in("view")))
    state = {
        "searchFilter": "tags.kind = 'candidate'",
        "orderByKey": f"metrics.`{order}`",
        "orderByAsc": METRICS[order].direction == "minimize",
        "selectedColumns": [
            *(["attributes.`User`"] if users else []),
            *(f"tags.`{n}`" for n in VIEW_TAGS),
            *(f"metrics.`{n}`" for n in shown),
        ],
    }
    client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{VIEW}", json.dumps(state))


def _quoted(query: Mapping[str, str]) -> str:
    return urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
