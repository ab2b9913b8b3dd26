"""The device belongs to one sweep at a time."""

from pathlib import Path

import pytest

from tests.evaluation.shared_places import child
from workbench.evaluation.bench import device_lock
from workbench.values.errors import ToolchainError

HOLD = """
import sys, pathlib
from workbench.evaluation.bench import device_lock
with device_lock(pathlib.Path(sys.argv[1]), wait_s=0, report=print):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_sweep_waits_says_for_whom_and_gives_up_in_time(tmp_path: Path) -> None:
    said: list[str] = []
    with child(HOLD, tmp_path / "device.lock") as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(ToolchainError, match=f"still in use by process {holder.pid} .* after 0.3 s"),
            device_lock(tmp_path / "device.lock", wait_s=0.3, report=said.append),
        ):
            pytest.fail("entered a lock that another process holds")
        holder.kill()

    assert len(said) == 1
    assert f"process {holder.pid}" in said[0]
    with device_lock(tmp_path / "device.lock", wait_s=0, report=pytest.fail):
        pass  # kill -9 frees it


def test_a_lock_file_that_cannot_be_made_is_the_machines_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ToolchainError, match="lock file cannot be opened"),
        device_lock(tmp_path / "file" / "device.lock", wait_s=0, report=pytest.fail),
    ):
        pytest.fail("entered without a lock file")
