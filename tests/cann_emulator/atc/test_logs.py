"""atc.md §5.5: where the log goes, what it holds, and what turns it off."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.cann_emulator.atc.console import Log

LEVELS = ("debug", "info", "warning", "error")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("ASCEND_PROCESS_LOG_PATH", "ASCEND_WORK_PATH", "ASCEND_SLOG_PRINT_TO_STDOUT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write_all(level: str, screen: Callable[[str], None] = print) -> None:
    log = Log(level, screen)
    for each in LEVELS:
        log.write(each, "GE", f"a {each} line")


def lines(folder: Path) -> list[str]:
    (file,) = (folder / "debug/plog").glob(f"plog-{os.getpid()}_*.log")
    return file.read_text().splitlines()


def test_the_process_log_path_beats_the_work_path_beats_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(home / "work"))
    write_all("error")
    assert lines(home / "work/log")
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(home / "process"))
    write_all("error")
    assert lines(home / "process")
    assert not (home / "ascend").exists()


def test_a_log_that_cannot_be_written_is_given_up(home: Path) -> None:
    (home / "ascend").write_text("a file where the folder should be")
    write_all("debug")

    assert (home / "ascend").is_file()
