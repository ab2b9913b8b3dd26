"""The device belongs to one sweep at a time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.evaluation.device_lock import device_lock
from workbench.values.errors import MeasureError, ToolchainError

HOLD = """
import sys, pathlib
from workbench.evaluation.device_lock import device_lock
with device_lock(pathlib.Path(sys.argv[1]), wait_s=0, report=print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "device.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_sweep_waits_says_for_whom_and_gives_up_in_time(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    said: list[str] = []

    with (
        pytest.raises(ToolchainError, match=f"still in use by process {holder.pid} .* after 0.3 s"),
        device_lock(tmp_path / "device.lock", wait_s=0.3, report=said.append),
    ):
        pytest.fail("entered a lock that another process holds")

    assert len(said) == 1
    assert f"process {holder.pid}" in said[0]


def test_the_lock_is_free_again_after_an_error_inside_and_one_that_cannot_be_made_is_the_machines_error(
    tmp_path: Path,
) -> None:
    at: Any = {"wait_s": 0.0, "report": pytest.fail}
    with pytest.raises(MeasureError, match="inside"), device_lock(tmp_path / "device.lock", **at):
        raise MeasureError("inside")
    with device_lock(tmp_path / "device.lock", **at):
        pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ToolchainError, match="lock file cannot be opened"),
        device_lock(tmp_path / "file" / "device.lock", **at),
    ):
        pytest.fail("entered without a lock file")
