"""Files that are there whole or not at all, and locks that die with their holder: with real files and processes."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.values.errors import ToolchainError
from workbench.values.system.files import (
    Lock,
    lock_file,
    temporary_beside,
    write_json_atomically,
    write_text_atomically,
)


def test_a_file_gets_its_name_when_the_block_ends_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / ("长" * 85)  # 255 bytes, as long as a file system takes
    with temporary_beside(file) as draft:
        draft.write_text("new")
        assert not file.exists()
        assert draft.parent == tmp_path
    assert file.read_text() == "new"
    write_json_atomically(file, {"b": 1, "a": (1.5, None)})
    assert file.read_text() == '{"a":[1.5,null],"b":1}\n'
    with pytest.raises(FileNotFoundError), temporary_beside(tmp_path / "a", durable=False):
        pass
    assert [*tmp_path.iterdir()] == [file]


def test_an_exception_leaves_the_old_file_and_no_draft_and_writers_share_none(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")
    for durable in (True, False):
        with (
            contextlib.suppress(KeyboardInterrupt),
            temporary_beside(file, durable=durable) as draft,
            temporary_beside(file) as another,
        ):
            assert draft != another
            draft.write_text("half")
            raise KeyboardInterrupt
        assert file.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_file_beyond_the_limit_of_the_disk_is_an_error_and_the_old_one_stands(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ToolchainError, match=r"a\.txt cannot be written: File too large"):
            write_text_atomically(file, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_lock_that_is_taken_says_by_whom_and_waiting_for_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    told: list[str] = []
    with lock_file(path, owner="process 7") as first, lock_file(path) as second:
        assert first == Lock(held=True)
        assert second == Lock(held=False, holder="process 7")
        with lock_file(path, wait_s=0.12, waiting=told.append) as late:
            assert not late.held
    assert told == ["process 7"]
    with lock_file(path) as third:
        assert third.held
    with pytest.raises(FileNotFoundError), lock_file(tmp_path / "no" / "lock"):
        pass


HOLDER = """
import os, pathlib, sys, time
from workbench.values.system.files import lock_file
with lock_file(pathlib.Path(sys.argv[1]), remove=True) as lock:
    print("held" if lock.held else "taken", flush=True)
    time.sleep(900)
"""


def test_kill_9_frees_a_lock_and_whoever_waits_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with lock_file(path) as lock:
            assert not lock.held
        with lock_file(path, wait=True, remove=True, waiting=lambda _: holder.kill()) as lock:
            assert lock.held
    assert not path.exists()


def test_a_forked_child_does_not_remove_its_parents_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = f"""
import os, pathlib
from workbench.values.system.files import lock_file
path = pathlib.Path({str(path)!r})
with lock_file(path, remove=True):
    if (child := os.fork()) == 0:
        raise SystemExit  # leaves the block as the parent will
    os.waitpid(child, 0)
    with lock_file(path) as other:
        print(path.exists(), other.held)
print(path.exists())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_draft_that_a_killed_process_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    code = "import os, pathlib, sys; from workbench.values.system.files import temporary_beside\n"
    code += "with temporary_beside(pathlib.Path(sys.argv[1])) as draft:\n"
    code += "    draft.write_text('half'); os.kill(os.getpid(), 9)"
    path = tmp_path / "evaluation.json"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, cwd=Path(__file__).parents[3])
    left = [p.name for p in tmp_path.iterdir()]
    (tmp_path / f".evaluation.json.{os.getpid()}-0123abcd.tmp").write_text("of a living process")
    (tmp_path / ".other.json.999999999-0123abcd.tmp").write_text("of another file")

    write_text_atomically(path, "whole")

    assert len(left) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["evaluation.json", f".evaluation.json.{os.getpid()}-0123abcd.tmp", ".other.json.999999999-0123abcd.tmp"]
    )
