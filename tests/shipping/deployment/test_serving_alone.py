"""The listed packages suffice: a Python that sees them and the workbench, and nothing else, verifies and serves.

Links to the installed packages take the place of installing them in a fresh virtual environment.
"""

import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.serve.making import Running, make_bundle
from workbench.bundle.requirements import pins

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the packages of requirements-serve.txt and to the workbench."""
    to = tmp_path_factory.mktemp("packages")
    for pin in pins("onnxruntime", {}):
        distribution = importlib.metadata.distribution(pin.partition("==")[0])
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        assert tops, pin
        for top in tops:
            link = to / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    (to / "workbench").symlink_to(ROOT / "workbench")
    # its metadata name the targets, as in an installed wheel; the checkout holds what setuptools left, which is another
    installed = importlib.metadata.distributions(name="int8-workbench")
    metadata, ours = next(
        (file.parts[0], found)
        for found in installed
        for file in found.files or ()
        if file.parts[0].endswith(".dist-info")
    )
    (to / metadata).symlink_to(Path(str(ours.locate_file(metadata))))
    return to


def environment_of(packages: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "HOME": str(packages.parent)}


def test_such_a_python_serves_a_bundle(packages: Path, tmp_path: Path) -> None:
    """Front end and worker: the worker is spawned with the same flags, and so sees no more."""
    bundle, log = make_bundle(tmp_path), tmp_path / "service.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-S", "-m", "workbench.serve", str(bundle), "--port", "0"],
            env=environment_of(packages),
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    service = Running(process, "127.0.0.1", 0, log)
    try:
        service.wait_until(lambda: process.poll() is not None or service.worker_pids(), 60)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        url = next(event["url"] for event in service.events() if event["event"] == "listening")
        service.port = int(url.rpartition(":")[2])

        assert service.health().status == 200
        assert service.predict({"text": "anna paid"}).status == 200
        (worker,) = service.worker_pids().values()
        assert "-S" in psutil.Process(worker).cmdline()
        assert service.end() == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
