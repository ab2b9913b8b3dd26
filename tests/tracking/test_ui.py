"""The way into MLflow's UI, and the real one in a browser where there is one."""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.team import free_port, wait_for
from tests.tracking.test_tracking import NAME, runs, swept
from workbench.tracking import links_of, ui_command
from workbench.values.errors import ToolchainError


def test_links_name_the_mode_the_view_and_members_of_the_front_beside_the_baseline(workspace: Path) -> None:
    said = swept(workspace)

    assert links_of(workspace, NAME) == said
    assert [line.split(":")[0] for line in said] == ["all candidates", "front compared", "Pareto page"]
    assert all("workflowType=machine_learning" in line for line in said)
    (recommended,) = runs(workspace, "tags.recommended = 'true'")
    assert f"runs=%5B%22{recommended.info.run_id}" in said[1]
    (baseline,) = runs(workspace, "tags.baseline = 'true'")
    assert f"{baseline.info.run_id}%22%5D" in said[1]
    assert {run.data.tags["evidence"] for run in runs(workspace, "tags.pareto = 'true'")} == {"measured held-out"}


def test_there_are_no_links_before_anything_was_logged(workspace: Path, tmp_path: Path) -> None:
    assert links_of(workspace, NAME) == []
    assert links_of(tmp_path / "elsewhere", NAME) == []
    with pytest.raises(ToolchainError, match="Run a sweep first"):
        ui_command(tmp_path / "elsewhere")


def test_the_ui_is_started_small_and_silent(workspace: Path) -> None:
    command, environment = ui_command(workspace, "127.0.0.1", 5001)

    assert command[:4] == [sys.executable, "-m", "mlflow", "ui"]
    assert command[-2:] == ["--workers", "1"]
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


class Browser:
    """Headless Chromium through ChromeDriver's own protocol (W3C WebDriver), which needs no package."""

    def __init__(self, profile: Path) -> None:
        self.port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: self.call("GET", "/status")["ready"])
        flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
        flags += f"disable-component-update disable-sync window-size=1700,1300 user-data-dir={profile}"
        options = {"goog:chromeOptions": {"args": [f"--{flag}" for flag in flags.split()]}}
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self.session = f"/session/{made['sessionId']}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["value"]

    def text(self) -> str:
        script = {"script": "return document.body.innerText", "args": []}
        return str(self.call("POST", f"{self.session}/execute/sync", script))

    def open(self, address: str, *expected: str) -> str:
        """Go to a page and give its text once everything expected is in it."""
        self.call("POST", f"{self.session}/url", {"url": "about:blank"})
        self.call("POST", f"{self.session}/url", {"url": address})
        wait_for(lambda: all(word in self.text() for word in expected), self.text)
        return self.text()

    def into_frame(self) -> None:
        found = self.call("POST", f"{self.session}/element", {"using": "css selector", "value": "iframe"})
        self.call("POST", f"{self.session}/frame", {"id": found})

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("GET", f"{self.session}/screenshot")))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.call("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait(timeout=300)


@pytest.fixture
def browser() -> Iterator[Browser]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not on PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        opened = Browser(Path(profile))
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture
def served(workspace: Path) -> Iterator[list[str]]:
    """The links into a real UI that serves a finished sweep."""
    swept(workspace)
    port = free_port()
    command, environment = ui_command(workspace, port=port)
    with (workspace / "ui.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20).close() is None)
            yield [line.split(":", 1)[1].strip() for line in links_of(workspace, NAME, port=port)]
        finally:
            process.terminate()
            process.wait(timeout=300)


def test_the_real_ui_lists_compares_and_shows_the_page(browser: Browser, served: list[str], tmp_path: Path) -> None:
    candidates, comparison, page = served

    listed = browser.open(candidates, "6 matching runs", "accuracy_drop_pp", "speedup", "evidence")
    browser.picture(tmp_path / "runs.png")
    compared = browser.open(comparison, "Comparing 4 Runs", "quantization.keep_float", "holdout_speedup")
    browser.picture(tmp_path / "compare.png")
    browser.open(page, "pareto.html")
    wait_for(lambda: browser.call("POST", f"{browser.session}/elements", {"using": "tag name", "value": "iframe"}))
    browser.into_frame()
    wait_for(lambda: "Pareto front" in browser.text(), browser.text)
    browser.picture(tmp_path / "page.png")

    assert "INT8 static" in listed
    assert "latency_p99_ms" in compared
    assert re.search(r"Recommended: [0-9a-f]{12}\s+INT8 static", browser.text())
