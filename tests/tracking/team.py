"""A team's services, started for tests: PostgreSQL, an S3-compatible store and `mlflow server` over both."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.load.servers import free_ports, program

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
    (port,) = free_ports(1)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")} | {
        **{"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION},
        **{"MLFLOW_S3_ENDPOINT_URL": s3, "MLFLOW_DISABLE_TELEMETRY": "true"},
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database, "--host", "127.0.0.1"]
    command += ["--artifacts-destination", f"s3://{BUCKET}/mlflow", "--workers", "2", "--port", str(port)]
    # a worker imports MLflow before it answers its parent, which otherwise starts it anew after 5 s, again and again
    command += ["--uvicorn-opts", "--timeout-worker-healthcheck 300"]
    address, log = f"http://127.0.0.1:{port}", folder / "mlflow.log"
    with program(command, f"{address}/health", log, env=environment, patience_s=400) as process:
        yield Team(address=address, s3=s3, process=process)


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    tools, (port,) = _postgres_tools(), free_ports(1)
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

    (port,) = free_ports(1)
    address, code = (
        f"http://127.0.0.1:{port}",
        f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])",
    )
    with program([sys.executable, "-c", code], f"{address}/moto-api/", folder / "s3.log"):
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        boto3.client("s3", endpoint_url=address, region_name=REGION, **keys).create_bucket(Bucket=BUCKET)
        yield address


def _postgres_tools() -> Path | None:
    if (found := shutil.which("initdb")) is not None and shutil.which("pg_ctl") is not None:
        return Path(found).parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None
