"""The journal: whole files, one writer, nothing lost."""

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.evaluation.shared_places import child
from tests.evaluations import evaluation
from workbench.evaluation.bench import device_lock
from workbench.evaluation.sweep_folders import current_journal, exclusive, open_journal
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.results import Failure


def test_a_log_is_found_again_when_the_workspace_has_moved(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "here", "demo", "a" * 64)
    log = journal.log(evaluation().candidate.id, "validation")
    log.write_text("what the compiler said")
    failure = Failure(stage="compile", kind="CompileError", message="no", reproduce="again", log_path=str(log))
    journal.write(evaluation(failure=failure))

    (tmp_path / "here").rename(tmp_path / "there")

    moved = open_journal(tmp_path / "there", "demo", "a" * 64)
    (found,) = moved.evaluations().values()
    assert found.failure.log_path is not None
    assert Path(found.failure.log_path).read_text() == "what the compiler said"


def test_the_newest_sweep_goes_on_and_fresh_starts_another(tmp_path: Path) -> None:
    first = open_journal(tmp_path, "demo", "a" * 64)

    assert open_journal(tmp_path, "demo", "a" * 64) == first
    second = open_journal(tmp_path, "demo", "a" * 64, fresh=True)
    assert second != first
    assert current_journal(tmp_path, "demo") == second
    assert first.root.is_dir()
    with pytest.raises(ConfigError, match=r"another model, data, space, objective or constraint.*--fresh"):
        open_journal(tmp_path, "demo", "b" * 64)


def test_the_first_kept_baseline_time_is_the_anchor(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "demo", "a" * 64)

    assert journal.anchor("validation", 1, 5.0, keep=False) == 5.0
    assert journal.anchor("validation", 1, 4.0, keep=True) == 4.0
    assert journal.anchor("validation", 1, 6.0, keep=True) == 4.0
    assert journal.anchor("validation", 8, 30.0, keep=True) == 30.0
    assert journal.anchor("holdout", 1, 3.0, keep=True) == 3.0
    first = [journal.anchor("validation", 1, ms, length=n) for n, ms in ((64, 5.0), (64, 6.0), (128, 9.0))]
    assert (*first, journal.anchor("holdout", 1, 7.0, length=64)) == (5.0, 5.0, 9.0, 7.0), "of a curve their own"


def test_a_sweep_and_a_device_belong_to_one_process_at_a_time(tmp_path: Path) -> None:
    """The kernel frees them when it dies: `tests/values/system/test_files.py`."""
    journal, said = open_journal(tmp_path, "demo", "a" * 64), list[str]()

    def device(place: Path) -> AbstractContextManager[None]:
        return device_lock(place / "device.lock", wait_s=0.1, report=said.append)

    with exclusive(journal), device(tmp_path):
        with pytest.raises(ToolchainError, match=f"process {os.getpid()} is running this sweep"), exclusive(journal):
            pytest.fail("entered a lock that is held")
        with pytest.raises(ToolchainError, match=rf"in use by process {os.getpid()} .* after 0\.1 s"), device(tmp_path):
            pytest.fail("entered a lock that is held")
    assert [f"process {os.getpid()}" in one for one in said] == [True], "who is waited for is said once"
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match="lock file cannot be opened"), device(tmp_path / "file"):
        pytest.fail("entered without a lock file")


def test_a_writer_killed_at_any_moment_leaves_whole_files_only(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "demo", "a" * 64)
    code = """
        import sys, pathlib, itertools
        from tests.evaluations import evaluation
        from workbench.evaluation.journal import Journal
        journal = Journal(root=pathlib.Path(sys.argv[1]))
        print("go", flush=True)
        for n in itertools.count(1):
            journal.write(evaluation(threads=n))
        """
    with child(code, journal.root) as writer:
        writer.stdout.readline()
        folder = journal.root / "evaluations"
        while len(list(folder.glob("[!.]*.json"))) < 20:
            assert writer.poll() is None
            time.sleep(0.01)  # between looks at what another process does
        writer.kill()

    whole = list(folder.glob("[!.]*.json"))
    assert len(whole) >= 20
    assert len(journal.evaluations()) == len(whole)
    assert not journal.damage()
