import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workbench.targets.apart import run_apart


def ends(pid: int, seconds: float = 90) -> bool:
    """True once a process has ended, be it that nobody asked yet how."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def wait_for(file: Path) -> None:
    """Until something is written there."""
    deadline = time.monotonic() + 120
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_it_leaves_running_is_ended(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child"
    run_apart(["/bin/sh", "-c", script], environment={"PATH": os.environ["PATH"]}, timeout_s=120)

    assert ends(int((tmp_path / "child").read_text()))


def test_a_program_takes_no_more_memory_than_it_may() -> None:
    command = [sys.executable, "-c", "bytearray(1 << 30)"]

    assert "MemoryError" in run_apart(command, environment={}, timeout_s=600, most_bytes=1 << 29).output


def test_nothing_is_left_when_the_workbench_is_interrupted_or_killed(tmp_path: Path) -> None:
    for ended in (signal.SIGINT, signal.SIGKILL):
        folder = tmp_path / ended.name
        folder.mkdir()
        script = f"sleep 600 & echo $! > {folder}/child; echo $$ > {folder}/pid; wait"
        code = (
            "from workbench.targets.apart import run_apart\n"
            f"run_apart(['/bin/sh', '-c', {script!r}], environment={{}}, timeout_s=600)"
        )
        caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        wait_for(folder / "pid")

        caller.send_signal(ended)
        caller.wait(120)

        assert all(ends(int((folder / name).read_text())) for name in ("pid", "child"))
