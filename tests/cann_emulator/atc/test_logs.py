"""atc.md §5.5: where the log goes, what it holds, and what turns it off."""

import os
import re
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


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_and_what_is_above_it_is_written_with_module_process_time_and_place(level: str, home: Path) -> None:
    write_all(level)

    written = lines(home / "ascend/log")
    assert [line.partition("]a ")[2] for line in written] == [f"{each} line" for each in LEVELS[LEVELS.index(level) :]]
    stamp = r"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3}"
    form = rf"\[ERROR\] GE\({os.getpid()},atc\.bin\):{stamp} \[test_logs\.py:\d+\]a error line"
    assert re.fullmatch(form, written[-1])


def test_the_process_log_path_beats_the_work_path_beats_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(home / "work"))
    write_all("error")
    assert lines(home / "work/log")
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(home / "process"))
    write_all("error")
    assert lines(home / "process")
    assert not (home / "ascend").exists()


def test_the_screen_replaces_the_files_and_null_writes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all("null")
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    shown: list[str] = []
    write_all("null", shown.append)
    assert not shown
    write_all("info", shown.append)

    assert [line.partition(" ")[0] for line in shown] == ["[INFO]", "[WARNING]", "[ERROR]"]
    assert list(home.iterdir()) == []


def test_a_log_that_cannot_be_written_is_given_up(home: Path) -> None:
    (home / "ascend").write_text("a file where the folder should be")
    write_all("debug")

    assert (home / "ascend").is_file()
