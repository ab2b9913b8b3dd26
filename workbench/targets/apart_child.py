"""Runs one command so that nothing of it outlives the workbench. A program of its own, standard library only.

    python -I -S apart_child.py MOST_BYTES COMMAND...

Standard error is the command's log. Standard input is a lifeline: when its other end closes, because the workbench
wants the command to end or was itself killed, every process of the command's group is killed. One line of JSON on
standard output says how it went. Leftovers of a command that ended by itself are killed too.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys


def main(most_bytes: int, command: list[str]) -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    log = sys.stderr.fileno()

    def bounded() -> None:
        if most_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))

    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=bounded
        )
    except OSError as error:
        answer({"errno": error.errno})
        return
    try:
        while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            ready, _, _ = select.select([0, wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 512)
            if 0 in ready and not os.read(0, 512):
                break
    finally:
        # not reaped yet, so that the group's number cannot have gone to another process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    answer({"status": child.returncode})


def answer(what: dict[str, object]) -> None:
    # nobody listens when the workbench itself was killed
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
