"""Temporary folders: gone with their block, and those of the dead with the next start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.values.errors import ToolchainError
from workbench.values.system.scratch import remove_abandoned, scratch_folder

ROOT = Path(__file__).parents[3]
HOLDER = """
import pathlib, sys, time
from workbench.values.system.scratch import scratch_folder
inside = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
with scratch_folder("load", inside=inside) as folder:
    (folder / "bodies.json").write_text("[]")
    print(folder, flush=True)
    time.sleep(900)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holder(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ}
    )


def place_of(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_a_folder_is_gone_with_its_block_whatever_is_in_it(temporary: Path) -> None:
    with scratch_folder("memory") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
        assert folder.parent == temporary / f"workbench-{os.getuid()}"
        assert folder.stat().st_mode & 0o077 == 0

    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_folder_of_a_killed_process_goes_with_the_next_start_and_that_of_a_living_one_stays(
    temporary: Path, elsewhere: bool
) -> None:
    inside = temporary / "mlruns" if elsewhere else None
    if inside is not None:
        inside.mkdir()
        (inside / ".mine").mkdir()
    arguments = [] if inside is None else [str(inside)]
    with holder(*arguments) as living, holder(*arguments) as killed:
        kept, left = place_of(living), place_of(killed)
        killed.kill()
        killed.wait()
        assert left.exists()

        if inside is None:
            remove_abandoned()
        else:
            with scratch_folder("new", inside=inside):
                pass

        assert not left.exists()
        assert (kept / "bodies.json").exists()
        living.terminate()
    assert inside is None or (inside / ".mine").exists()


def test_a_room_that_is_not_ours_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"workbench-{os.getuid()}").symlink_to(temporary / "elsewhere")

    with pytest.raises(ToolchainError, match=r"no folder of this user's own.*TMPDIR"), scratch_folder("memory"):
        pass
    remove_abandoned()


@pytest.mark.timeout(60)
def test_a_folder_within_a_scratch_folder_does_not_wait_for_the_lock_of_its_own_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workbench.values.system.scratch._PATIENCE_S", 900.0)

    with scratch_folder("outer") as outer, scratch_folder("inner", inside=outer) as inner:
        assert inner.parent == outer
