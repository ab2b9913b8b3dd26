"""Copies of a matrix product in real processes. No test asks how fast this machine is."""

import subprocess
import sys

import psutil
import pytest

from workbench.prediction.host_costs import capacity
from workbench.prediction.host_costs.capacity import measure_capacity
from workbench.values.errors import ToolchainError


def test_capacity_begins_with_one_never_falls_and_leaves_no_copy_behind() -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}

    found = measure_capacity(3, rounds=3, slice_s=0.02)

    assert len(found.together) == len(found.spread) == 3
    assert (found.together[0], found.spread[0]) == (1.0, 0.0)
    assert list(found.together) == sorted(found.together)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before
    assert measure_capacity(1, rounds=1, slice_s=0.01).together == (1.0,), "one processor needs no comparison"


def test_a_copy_that_dies_is_reported_and_the_others_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    started = subprocess.Popen

    def dying(command: list[str], **settings: object) -> object:
        return started([sys.executable, "-c", "raise SystemExit(3)"], **settings)

    monkeypatch.setattr(capacity.subprocess, "Popen", dying)

    with pytest.raises(ToolchainError, match="died"):
        measure_capacity(2, rounds=1, slice_s=0.01)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before
