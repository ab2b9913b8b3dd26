"""atc.md §5.5: where the log goes, what it holds, and what turns it off."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.cann_emulator.atc.logs import Log

VARIABLES = (
    *("ASCEND_PROCESS_LOG_PATH", "ASCEND_WORK_PATH", "ASCEND_SLOG_PRINT_TO_STDOUT", "ASCEND_GLOBAL_LOG_LEVEL"),
    *("ASCEND_MODULE_LOG_LEVEL", "ASCEND_GLOBAL_EVENT_ENABLE", "NPU_COLLECT_PATH"),
)
LEVELS = ("debug", "info", "warning", "error")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write_all(level: str, screen: Callable[[str], None] = print) -> None:
    log = Log.of_environment(level, screen)
    for each in (*LEVELS, "event"):
        log.write(each, "GE", f"a {each} line")


def lines(folder: Path, kind: str = "debug") -> list[str]:
    (file,) = (folder / kind / "plog").glob(f"plog-{os.getpid()}_*.log")
    return file.read_text().splitlines()


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_and_what_is_above_it_is_written(level: str, home: Path) -> None:
    write_all(level)

    expected = [f"a {each} line" for each in LEVELS[LEVELS.index(level) :]]
    assert [line.partition("]a ")[2] for line in lines(home / "ascend/log")] == [text[2:] for text in expected]
    assert lines(home / "ascend/log", "run")[0].endswith("a event line")


def test_null_writes_nothing(home: Path) -> None:
    write_all("null")

    assert list(home.iterdir()) == []


def test_a_line_has_level_module_process_time_and_place(home: Path) -> None:
    write_all("error")

    (line,) = lines(home / "ascend/log")
    stamp = r"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3}"
    assert re.fullmatch(rf"\[ERROR\] GE\({os.getpid()},atc\.bin\):{stamp} \[test_logs\.py:\d+\]a error line", line)


def test_the_process_log_path_beats_the_work_path_beats_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(home / "work"))
    write_all("error")
    assert lines(home / "work/log")
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(home / "process"))
    write_all("error")
    assert lines(home / "process")
    assert not (home / "ascend").exists()


def test_the_screen_replaces_the_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    shown: list[str] = []
    write_all("info", shown.append)

    assert [line.partition(" ")[0] for line in shown] == ["[INFO]", "[WARNING]", "[ERROR]", "[EVENT]"]
    assert list(home.iterdir()) == []


def test_the_screen_needs_a_level(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    shown: list[str] = []
    write_all("null", shown.append)

    assert (shown, list(home.iterdir())) == ([], [])


def test_events_can_be_turned_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_GLOBAL_EVENT_ENABLE", "0")
    write_all("error")

    assert not (home / "ascend/log/run").exists()


def test_the_flag_beats_the_global_level(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", "0")
    write_all("error")

    assert len(lines(home / "ascend/log")) == 1


def test_while_data_is_collected_null_leaves_the_level_to_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPU_COLLECT_PATH", str(home))
    monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", "2")
    monkeypatch.setenv("ASCEND_MODULE_LOG_LEVEL", "FE=0:TBE=4")
    log = Log.of_environment("null", print)
    for module in ("GE", "FE", "TBE"):
        for level in LEVELS:
            log.write(level, module, f"{module} {level}")

    assert [line.partition("]FE ")[2] or line.partition("]GE ")[2] for line in lines(home / "ascend/log")] == [
        *("warning", "error"),
        *LEVELS,
    ]


def test_a_log_that_cannot_be_written_is_given_up(home: Path) -> None:
    (home / "ascend").write_text("a file where the folder should be")
    write_all("debug")

    assert (home / "ascend").is_file()
