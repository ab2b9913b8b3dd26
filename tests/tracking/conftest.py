"""A workspace's empty store; the team's services, started once for all files of tests that a process runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.team import Team, team
from workbench.tracking import store


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make a database; every test starts from a copy of this one."""
    workspace = tmp_path_factory.mktemp("store")
    store.prepare(workspace / "mlruns")
    return workspace / "mlruns" / "mlflow.db"


@pytest.fixture
def workspace(tmp_path: Path, empty_store: Path) -> Path:
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_store, tmp_path / "mlruns" / "mlflow.db")
    return tmp_path


@pytest.fixture(scope="session")
def services() -> Iterator[Team]:
    with team() as found:
        yield found


@pytest.fixture
def server(services: Team, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", services.address)
    return services


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of an experiment: one server holds those of all tests."""
    return str(request.node.name)
