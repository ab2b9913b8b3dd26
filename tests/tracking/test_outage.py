"""Servers that refuse: what a sweep is told, how often, and that it goes on."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.tracking.test_tracking import BASELINE, swept, tracker


class _Answer(http.server.BaseHTTPRequestHandler):
    code = 500
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(self.code)
        self.send_header("Content-Length", "0")
        self.send_header("Retry-After", "3600")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


def test_a_server_that_refuses_is_named_once_and_the_sweep_goes_on(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    for code, said in (
        (500, "it answered 500"),
        (503, "it answered 503"),
        (401, "it refused the credentials (401; MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN)"),
        (403, "it does not permit this to your user (403)"),
    ):
        caplog.clear()
        monkeypatch.setattr(_Answer, "code", code)  # what the test's own server answers
        first, later = swept(tmp_path / str(code))
        assert len(caplog.records) == 1
        assert f"{server} failed: {said}" in caplog.text
        assert f"{server} failed: {said}" in first
        assert later == f"to log it later: workbench log experiments/loans.yaml --workspace {tmp_path / str(code)}"


def test_pauses_grow_to_ten_minutes(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], []
    # a clock of the test's: half an hour of pauses is not waited for
    monkeypatch.setattr("workbench.tracking.tracker.monotonic", lambda: now[0])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setattr(_Answer, "code", 401)
    with tracker(tmp_path) as writer:
        while now[0] < 2000:
            before = len(_Answer.paths)
            writer.evaluated(BASELINE, reused=False)
            asked += [now[0]] if len(_Answer.paths) > before else []
            now[0] += 10

    assert asked == [30, 90, 210, 450, 930, 1530]
