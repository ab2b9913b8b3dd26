"""The store: MLflow's SQLite database on disk, made whole and checked before use, or a server; errors in our words."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.tracking.server import (
    HTTP_ENVIRONMENT,
    TRACKING_URI,
    Place,
    errors_of_stores,
    place_of,
    unreachable,
    without_password,
    words,
)
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import temporary_beside, writing
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:  # importing mlflow takes a second and reads the environment, which `mlflow_errors` sets first
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

ARTIFACTS = "artifacts"
LOCK_WAIT_S = 5.0
_ADDRESSES = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))
"""Tables and columns in which MLflow 3.17 keeps where artifacts lie."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SKIP_PIP_REQUIREMENTS_CHECK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    **HTTP_ENVIRONMENT,
}
"""Nothing leaves the machine, and the UI starts no processes for jobs (MLflow 3.17). MLflow reads some of them when it
is imported."""


def prepare(store: Path) -> None:
    """Make the folder and the database, whole or not at all.

    A killed migration leaves a database that MLflow refuses for good. So a new one is made under a temporary name and
    linked into place, which also lets two first sweeps start at once: the slower one finds the file there.
    """
    database = store / "mlflow.db"
    with writing(store, "Check its owner, its mount and free space, or choose another folder with --workspace."):
        (store / ARTIFACTS).mkdir(parents=True, exist_ok=True)
        with scratch_folder("new", inside=store) as folder:
            if not database.exists():
                _make_empty(folder / "mlflow.db")
                with contextlib.suppress(FileExistsError):
                    os.link(folder / "mlflow.db", database)
    check_database(database, write=True)
    follow_move(database)


def _make_empty(to: Path) -> None:
    """MLflow's migrations take seconds, a copy of the database that they made before milliseconds: one is kept in the
    user's cache folder for each version of MLflow. What is no whole database there is made anew."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = home / "workbench" / "mlflow" / f"{version('mlflow')}.db"
    with contextlib.suppress(OSError, sqlite3.DatabaseError):
        to.write_bytes(kept.read_bytes())
        now = int(time.time() * 1000)
        with contextlib.closing(sqlite3.connect(to)) as connection, connection:
            if connection.execute("PRAGMA integrity_check").fetchone() == ("ok",):
                connection.execute(  # of the experiment Default, which MLflow makes and nobody uses
                    "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ?",
                    (str(to.parent / "0"), now, now),
                )
                return
    to.unlink(missing_ok=True)
    with mlflow_errors():
        client_of(Place(store=to.parent))
    with contextlib.suppress(OSError):  # a read-only home: the next one takes its seconds again
        kept.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(kept, durable=False) as draft:
            shutil.copyfile(to, draft)


def follow_move(database: Path) -> None:
    """Have a database whose folder was moved or copied find its artifacts beside it again.

    MLflow keeps absolute addresses of artifacts, in every experiment and every run. Those that end as ours do, in
    another folder, become those of this one, in one transaction; what somebody keeps elsewhere (in S3, say) stays.

    Raises:
        ToolchainError: the database cannot be read, or written where that is needed.
    """
    here = (database.parent.resolve() / ARTIFACTS).as_uri()
    ours = "/" + "/".join(here.split("/")[-2:])
    with _sqlite(database, "ro") as connection:
        known = [str(place) for (place,) in connection.execute("SELECT DISTINCT artifact_location FROM experiments")]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    moved = [place for place in known if place.startswith("file://") and place.endswith(ours) and place != here]
    if not moved:
        return
    with _sqlite(database, "rw") as connection:
        connection.execute("BEGIN IMMEDIATE")
        for place in moved:
            for table, column in _ADDRESSES:
                if table in tables:
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                        f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                        (here, len(place) + 1, place, len(place) + 1, f"{place}/"),
                    )
        connection.execute("COMMIT")


def check_database(database: Path, *, write: bool = False) -> None:
    """Ask SQLite itself, in milliseconds, what MLflow would say in a page of traceback.

    Args:
        write: also that it can be written, and in WAL mode from now on (a property of the file).
    """
    with _sqlite(database, "rw" if write else "ro") as connection:
        connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if write:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def _sqlite(database: Path, mode: Literal["ro", "rw"]) -> Iterator[sqlite3.Connection]:
    """A connection without a transaction of its own, and SQLite's errors in our words."""
    try:
        with contextlib.closing(
            sqlite3.connect(
                f"{database.resolve().as_uri()}?mode={mode}", uri=True, timeout=LOCK_WAIT_S, isolation_level=None
            )
        ) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        if "locked" in str(error) or "busy" in str(error):
            todo = "Another process is writing to it; stop it or wait, then run again."
        elif "readonly" in str(error) or "unable to open" in str(error):
            todo = "Check the owner and the mount of the folder, or choose another one with --workspace."
        else:
            todo = "Move it away; the next sweep makes a new one and logs again what it knows."
        raise ToolchainError(f"{database} cannot be used: {error}. {todo}") from error


def client_of(place: Place, *, registry: bool = False, then: str = "") -> MlflowClient:
    """A client on the workspace's database, which MLflow creates when it is not there, or on the server. Call it inside
    `mlflow_errors`.

    Args:
        registry: the registry's server is asked too whether it answers.
        then: as of `mlflow_errors`.

    Raises:
        ToolchainError: the server gives no answer.
    """
    for address in dict.fromkeys((place.server, place.registry) if registry else (place.server,)):
        if address and (why := unreachable(address)):
            raise _of_server(why, address, place, then)
    with warnings.catch_warnings():
        # MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 has deprecated; gone when MLflow drops it.
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")
        from mlflow import MlflowClient
        from mlflow.tracking._tracking_service import utils

        # MLflow keeps the place of a run's artifacts by the run's id for the whole process; the copy of a workspace
        # has the same ids and another place
        utils._artifact_repos_cache.clear()
        uri = f"sqlite:///{place.database.resolve()}"
        return MlflowClient(tracking_uri=place.server or uri, registry_uri=place.registry or uri)


@contextlib.contextmanager
def mlflow_errors(place: Place | None = None, then: str = "") -> Iterator[None]:
    """MLflow's and the file system's errors as ToolchainError; sets MLflow's environment before it is imported.

    Args:
        place: None for a workspace's own store.
        then: what the user does once the cause is mended; the sweep again where it is not said.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.exceptions import MlflowException

    server = "" if place is None else place.server
    if server:  # its warnings of every retry are said once, in our words
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:
        of_server = (MlflowException, OSError, ImportError, *errors_of_stores())
        if not isinstance(error, of_server if server else (MlflowException, OSError)):
            raise
        if place is not None and server:
            raise _of_server(words(error), server, place, then) from error
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        free = "Free space, or stop what holds mlruns/mlflow.db"
        again = ", then run the sweep again: it logs what is missing and measures nothing twice."
        raise ToolchainError(f"MLflow's store failed: {first}. {free}{f'. {then}' if then else again}") from error


def _of_server(why: str, address: str, place: Place, then: str) -> ToolchainError:
    todo = f"Check {TRACKING_URI} and whether the server at {place.name} works. {then}".strip()
    return ToolchainError(f"MLflow's server {without_password(address)} failed: {why}. {todo}")


def check_server(workspace: Path) -> str:
    """What can be known of a team's server without writing to it: that the server of tracking and the one of the
    registry answer to these credentials, in words; '' for none.

    Raises:
        ConfigError: what the environment names is no server.
        ToolchainError: one does not answer, or refuses.
    """
    place = place_of(workspace)
    if not place.server:
        return ""
    with mlflow_errors(place):
        client = client_of(place, registry=True)
        client.search_experiments(max_results=1)
        client.search_registered_models(max_results=1)
    registry = "" if place.registry == place.server else f", its registry {without_password(place.registry)}"
    return f"{place.name}{registry} answers to these credentials; runs go there"


def versions_named(client: MlflowClient, name: str) -> list[ModelVersion]:
    """Every version of a registered model, however many pages that takes."""
    return _every(lambda token: client.search_model_versions(f"name={_quoted(name)}", page_token=token))


def _every(page_of: Callable[[str | None], Any]) -> list[Any]:
    found: list[Any] = []
    token: str | None = None
    while True:
        page = page_of(token)
        found += page
        token = page.token
        if not token:
            return found


def model_of(client: MlflowClient, name: str) -> RegisteredModel | None:
    found = client.search_registered_models(f"name={_quoted(name)}")
    return found[0] if found else None


def make_model(client: MlflowClient, name: str, about: str) -> None:
    """Nothing where it is there."""
    from mlflow.exceptions import MlflowException

    if model_of(client, name) is not None:
        return
    try:
        client.create_registered_model(name, description=about)
    except MlflowException:
        if model_of(client, name) is None:  # it was not another command that was quicker
            raise


def _quoted(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


OURS = "workbench"
"""The tag of an experiment that the workbench made, or took over while it was empty."""


def open_experiment(client: MlflowClient, name: str, artifacts: Path | None, about: str) -> str:
    """The id of the experiment, made when it is new and restored when it was deleted in the UI.

    Args:
        artifacts: where they are to lie; None for where the server puts them.

    Raises:
        ToolchainError: its artifacts lie in a place that is not this store's.
        ConfigError: somebody else's runs are in the server's experiment of that name.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        tags = {OURS: "true"} | ({"mlflow.note.content": about} if about else {})
        place = None if artifacts is None else artifacts.as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=place, tags=tags))
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:  # it was not another sweep that was quicker
                raise
    if artifacts is None and OURS not in found.tags:
        if client.search_runs([found.experiment_id], max_results=1):
            raise ConfigError(
                f"the server's experiment {name!r} holds runs that the workbench did not write.",
                key=name,
                hint="Give yours another name: nothing was logged.",
            )
        client.set_experiment_tag(found.experiment_id, OURS, "true")
    if artifacts is not None and found.artifact_location != artifacts.as_uri():
        raise ToolchainError(
            f"the experiment {name!r} of {artifacts.parent / 'mlflow.db'} was not made by the workbench: its artifacts "
            f"lie in {found.artifact_location}. Rename it, or move mlruns/ away; the next sweep logs again."
        )
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def find_runs(
    client: MlflowClient, experiment_id: str, chosen: str, order: str = "attributes.start_time ASC"
) -> list[Run]:
    """Every run that MLflow's filter chooses, however many pages that takes."""
    asked: dict[str, Any] = {"max_results": 1000, "order_by": [order]}
    return _every(lambda token: client.search_runs([experiment_id], chosen, page_token=token, **asked))
