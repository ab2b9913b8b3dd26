"""A workplace for each test, and a team of machines for every kind of place that a shared store may lie in."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluation.shared_places import Team, bucket
from tests.evaluation.workplace import Workplace


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.bench.store.close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server in this process."""
    pytest.importorskip("s3fs", reason="the extra [cluster] is not installed")
    server_module = pytest.importorskip("moto.server", reason="no S3 server to speak to: moto is not installed")
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new and empty place of each kind."""
    if request.param == "folder":
        (tmp_path / "team").mkdir()
        return str(tmp_path / "team")
    return bucket(request.getfixturevalue("s3_endpoint"), monkeypatch)


@pytest.fixture
def team(url: str, tmp_path: Path) -> Iterator[Team]:
    with contextlib.closing(Team(url, tmp_path)) as opened:
        yield opened
