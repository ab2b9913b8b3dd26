"""Programs in the style of published clients, run unchanged as child processes against the tree's `acl`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cann_emulator.acl.library import (
    CLIENTS,
    batch_gears,
    dims_gears,
    multilayer,
    ranged,
    run_program,
    saved,
)
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.timing import execute_us, stream_us
from workbench.values.modelled_times.device_data import load_device_data

X = np.random.default_rng(4).standard_normal((5, 16)).astype(np.float32)
STRICT = {"CANN_EMULATOR_STRICT": "1", "CANN_EMULATOR_LEAKS": "error"}


def run(client: str, tree: Path, *arguments: str) -> str:
    done = run_program([sys.executable, str(CLIENTS / client), *arguments], tree, env=STRICT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("released\n")
    return done.stdout


@pytest.mark.parametrize("options", [(), ("memory",)])
def test_acllite(tree: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    np.save(tmp_path / "x.npy", X)
    path = saved(multilayer(), tmp_path)
    run("acllite_like.py", tree, path, str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), *options)
    expected = Executable(multilayer(), threads=1).run({"x": X})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


def test_acllite_with_batch_gears(tree: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[:4])
    path = saved(batch_gears(1, 4, 8), tmp_path)
    run("acllite_like.py", tree, path, str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "gear")
    expected = Executable(multilayer(batch=4), threads=1).run({"x": X[:4]})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


def test_msit(tree: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    run("msit_like.py", tree, saved(multilayer(), tmp_path), str(tmp_path / "x.npz"), str(tmp_path / "y.npy"))
    expected = Executable(multilayer(), threads=1).run({"x": X})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


def test_msit_with_shape_ranges(tree: Path, tmp_path: Path) -> None:
    left, right = np.ones((1, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "x.npz", left=left, right=right)
    run("msit_like.py", tree, saved(ranged(), tmp_path), str(tmp_path / "x.npz"), str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), left + right)


def test_dynamic_net(tree: Path, tmp_path: Path) -> None:
    run("dynamic_net_like.py", tree, saved(dims_gears(), tmp_path), str(tmp_path / "y.npz"))
    results = np.load(tmp_path / "y.npz")
    np.testing.assert_array_equal(results["gear0"], np.arange(20, dtype=np.float32)[None])
    np.testing.assert_array_equal(results["gear1"], np.arange(40, dtype=np.float32)[None] + np.ones((2, 40)))


def test_bench(tree: Path, tmp_path: Path) -> None:
    data, model = load_device_data("Ascend910B3"), multilayer()
    expected = (execute_us(model, 0, data) + 4 * stream_us(model, 0, data)) / 5 / 1000
    said = run("bench_like.py", tree, saved(model, tmp_path), "5")
    assert "NPU_compute_time (ms): min =" in said
    # a stream waits for a host that is kept from its next call: that adds, and never takes away; so the least of many
    assert float(said.split("device ")[1].split()[0]) == pytest.approx(expected, rel=1e-3)
