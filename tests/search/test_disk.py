"""A disk that is full."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.tiny import bench_of, write_workspace
from workbench.inputs.experiment import read_experiment
from workbench.search.sweep import run_sweep
from workbench.values.errors import ToolchainError


def test_a_full_disk_stops_the_sweep_and_keeps_what_was_measured(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        question = read_experiment(write_workspace(tmp_path), workspace=small)
        bench = bench_of(question)
        with pytest.raises(ToolchainError, match=r"[Nn]o space|full|free"):
            run_sweep(question, bench, trials=40)
        bench.store.close()
        kept = bench.journal.evaluations()
        assert kept
        assert all(e.status in ("complete", "stopped") for e in kept.values())
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        again = bench_of(question)
        end = run_sweep(question, again, trials=len(kept) + 1)
        again.store.close()
        assert end.new == 1
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
