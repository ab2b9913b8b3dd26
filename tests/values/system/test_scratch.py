"""Temporary folders: gone with their block, and those of the dead with a later start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.values.errors import ToolchainError
from workbench.values.system.scratch import remove_abandoned, scratch_folder

HOLDER = """
import os, pathlib, sys, time
from workbench.values.system.scratch import scratch_folder
with scratch_folder("load", inside=pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None) as folder:
    (folder / "bodies.json").write_text("[]")
    os.utime(folder, (0, 0))  # as if it had been made long ago
    print(folder, flush=True)
    time.sleep(900)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_folder_is_gone_with_its_block_whatever_is_in_it(temporary: Path) -> None:
    with scratch_folder("memory") as folder, scratch_folder("inner", inside=folder):
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
        assert folder.parent == temporary / f"workbench-{os.getuid()}"
        assert folder.stat().st_mode & 0o077 == 0

    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_folder_of_a_killed_process_goes_with_a_later_start_and_that_of_a_living_one_stays(
    temporary: Path, elsewhere: bool
) -> None:
    command = [sys.executable, "-c", HOLDER, *([str(temporary)] if elsewhere else [])]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) for _ in range(2)
    ]
    with processes[0] as living, processes[1] as killed:
        kept, left = (Path(process.stdout.readline().strip()) for process in processes)
        killed.kill()
        killed.wait()
        assert left.exists()

        with scratch_folder("new", inside=temporary if elsewhere else None):
            remove_abandoned()

        assert not left.exists()
        assert (kept / "bodies.json").exists()
        living.terminate()


def test_a_room_that_is_not_ours_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"workbench-{os.getuid()}").symlink_to(temporary / "elsewhere")

    with pytest.raises(ToolchainError, match=r"no folder of this user's own.*TMPDIR"), scratch_folder("memory"):
        pass
    remove_abandoned()
