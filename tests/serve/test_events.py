"""The service's log: one JSON line for each event, and no line is worth a request."""

import errno
import io
import json
import os
import sys
import time

import pytest

from workbench.serve import events
from workbench.serve.events import log, log_seldom


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


def test_a_flood_of_refusals_is_a_line_a_second_that_counts_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)  # no real second is waited for, and none can pass unasked
    monkeypatch.setattr(events, "_seldom", {})  # what other tests of this process logged does not count
    for _ in range(5000):
        log_seldom("refused", kind="flooded", status=503)
    log_seldom("refused", kind="another", status=504)
    now_s += 1.5
    log_seldom("refused", kind="flooded", status=503)

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["kind"], line["times"]) for line in lines] == [("flooded", 1), ("another", 1), ("flooded", 5000)]
