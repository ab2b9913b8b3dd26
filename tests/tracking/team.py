"""A team's services, started for tests: PostgreSQL, an S3-compatible store and `mlflow server` over both."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BUCKET, REGION = "artifacts", "us-east-1"


@dataclass(frozen=True, kw_only=True)
class Team:
    """Attributes: address: of MLflow's server. process: its, in a group of its own."""

    address: str
    s3: str
    process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Stopped, so that connections are taken and never answered."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)


def missing() -> str:
    """Why the services cannot be started here; '' where they can."""
    if _postgres_tools() is None:
        return "initdb and pg_ctl of PostgreSQL are not installed (Debian: apt-get install postgresql)"
    lacking = [name for name in ("psycopg2", "boto3", "moto") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)} (pip install -e .[test])" if lacking else ""


@contextlib.contextmanager
def team() -> Iterator[Team]:
    """Skips the test where something is missing."""
    if why := missing():
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        # not pytest's own folder: PostgreSQL refuses root, and another user cannot enter there
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="team-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        database = stack.enter_context(_postgres(folder))
        s3 = stack.enter_context(_object_store(folder))
        yield stack.enter_context(_mlflow(folder, database, s3))


@contextlib.contextmanager
def _mlflow(folder: Path, database: str, s3: str) -> Iterator[Team]:
    port = free_port()
    environment = _without_mlflow() | _s3_environment(s3) | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database]
    command += ["--artifacts-destination", f"s3://{BUCKET}/mlflow", "--workers", "2", "--port", str(port)]
    # a worker imports MLflow before it answers its parent, which otherwise starts it anew after 5 s, again and again
    command += ["--uvicorn-opts", "--timeout-worker-healthcheck 300"]
    with _running([*command, "--host", "127.0.0.1"], folder / "mlflow.log", environment) as process:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: _answers(f"{address}/health"), (folder / "mlflow.log").read_text, timeout_s=400)
        yield Team(address=address, s3=s3, process=process)


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    tools, port = _postgres_tools(), free_port()
    assert tools is not None
    data = folder / "postgres"
    data.mkdir()
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(data, user)
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories='' -c fsync=off"

    def call(*command: str) -> None:
        subprocess.run(
            command, user=user, check=True, cwd=data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300
        )

    call(f"{tools}/initdb", "-D", f"{data}/db", "-U", "mlflow", "-A", "trust", "-E", "UTF8", "--no-sync")
    call(f"{tools}/pg_ctl", "-D", f"{data}/db", "-l", f"{data}/log", "-o", options, "-w", "start")
    try:
        yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/postgres"
    finally:
        call(f"{tools}/pg_ctl", "-D", f"{data}/db", "-m", "immediate", "stop")


@contextlib.contextmanager
def _object_store(folder: Path) -> Iterator[str]:
    import boto3

    port = free_port()
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with _running([sys.executable, "-c", code], folder / "s3.log", dict(os.environ)):
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: _answers(f"{address}/moto-api/"), (folder / "s3.log").read_text)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        boto3.client("s3", endpoint_url=address, region_name=REGION, **keys).create_bucket(Bucket=BUCKET)
        yield address


@contextlib.contextmanager
def _running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _s3_environment(address: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
    return keys | {"MLFLOW_S3_ENDPOINT_URL": address}


def _without_mlflow() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}


def _postgres_tools() -> Path | None:
    if (found := shutil.which("initdb")) is not None and shutil.which("pg_ctl") is not None:
        return Path(found).parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None


def _answers(address: str) -> bool:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return bool(answer.status == 200)


def wait_for(ready: Callable[[], object], said: Callable[[], str] = str, timeout_s: float = 240) -> None:
    """Until a program that is starting is ready; `said` tells, where it is not in time, how it is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.2)  # between questions to a program that is starting
    pytest.fail(f"not ready after {timeout_s} s: {said()[-2000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
