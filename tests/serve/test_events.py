"""The service's log: one JSON line for each event, and no line is worth a request."""

import errno
import io
import json
import os
import sys

import pytest

from workbench.serve.events import log


class FullDisk(io.StringIO):
    """What a file on a full disk does."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_written_stops_nobody_and_is_told_of_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", FullDisk())
        log("worker_lost", worker=0)
        log("worker_ready", worker=0)
    log("signal", name="SIGTERM")
    log("ended")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line.get("log_failures")) for line in lines] == [("signal", 2), ("ended", None)]
