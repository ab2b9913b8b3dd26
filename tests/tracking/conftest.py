"""The team's services, started once for all files of tests that a process runs."""

from collections.abc import Iterator

import pytest

from tests.tracking.team import Team, team


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
