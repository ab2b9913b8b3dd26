"""SIGTERM ends what a script has started with `&`, where SIGINT is ignored."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.tiny import write_workspace

IN_BACKGROUND = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""A command as `command &` starts it in a script."""


def test_a_sweep_in_the_background_ends_with_all_it_started(tmp_path: Path) -> None:
    command = [*IN_BACKGROUND, sys.executable, "-m", "workbench", "sweep", str(write_workspace(tmp_path))]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], **output) as process:
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
