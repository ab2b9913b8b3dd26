"""SIGTERM ends what a script has started with `&`, where SIGINT is ignored."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.tiny import write_workspace

ROOT = Path(__file__).parents[3]
IN_BACKGROUND = 'trap "" INT; exec "$@"'


def start(*arguments: str) -> "subprocess.Popen[str]":
    """The command as `command &` starts it in a script."""
    return subprocess.Popen(
        ["sh", "-c", IN_BACKGROUND, "sh", sys.executable, "-m", "workbench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )


def test_a_sweep_in_the_background_ends_with_all_it_started(tmp_path: Path) -> None:
    with start("sweep", str(write_workspace(tmp_path))) as process:
        for line in process.stdout:
            if line.lstrip().startswith("trying"):  # the plan is said, and the evaluation process runs
                break
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)  # as the terminal sends it: it stays ignored
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=300)

    assert children
    assert process.returncode == 143, rest
    psutil.wait_procs(children, timeout=300)  # they were sent SIGKILL, which a busy machine carries out later
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
