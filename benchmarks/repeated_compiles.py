"""Many compiles in one process against the emulated atc: what is left of them.

    python -m benchmarks.repeated_compiles [--compiles 200]

Prints, before and after: open file descriptors, threads, child processes, entries of the temporary and home folder,
resident memory; and the wall time of a compile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil

from tests.emulated_cann import emulated_environment
from tests.targets.encoder import save, tiny_encoder
from workbench.graph.read import read_model
from workbench.targets.ascend.interface import interface_of
from workbench.targets.ascend.om_set import compile_set
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import CompileError

BATCHES = (1, 2, 3, 4)


def counts(folder: Path) -> dict[str, int]:
    own = psutil.Process()
    return {
        "file descriptors": own.num_fds(),
        "threads": threading.active_count(),
        "child processes": len(own.children(recursive=True)),
        "temporary files": len(list((folder / "tmp").rglob("*"))),
        "files in home": len(list((folder / "home").rglob("*"))),
        "resident MB": own.memory_info().rss // 1_000_000,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--compiles", type=int, default=200)
    compiles = arguments.parse_args().compiles
    folder = Path(tempfile.mkdtemp(prefix="repeated-compiles-"))
    try:
        for name in ("tmp", "home", "to"):
            (folder / name).mkdir()
        tempfile.tempdir = str(folder / "tmp")
        environment = {**emulated_environment(folder), "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
        model = save(tiny_encoder(), folder / "model.onnx")
        interface = interface_of(read_model(model))
        good = Candidate(
            target="ascend910b3",
            precision=Precision(mode="force_fp16"),
            compile=AscendCompile(batches=BATCHES, sequence_bins=(16,)),
        )

        def compile_once() -> None:
            """One set of four files, and no trace of it afterwards."""
            to = folder / "to" / "set"
            to.mkdir()
            compile_set(model, good, interface, to, soc_version="Ascend910B3", environment=environment)
            shutil.rmtree(to)

        compile_once()
        before, started = counts(folder), time.perf_counter()
        done = failed = 0
        while done < compiles:
            compile_once()
            done += len(BATCHES)
            if done % 40 == 0:
                failed += fails(model, good, folder, {**environment, "CANN_EMULATOR_VERSION": "8.1.RC1"})
        seconds = time.perf_counter() - started
        after = counts(folder)
        print(f"{done} compiles and {failed} failing sets in {seconds:.0f} s, {os.cpu_count()} processors")
        for name, count in before.items():
            print(f"{name:20} before {count:6}  after {after[name]:6}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fails(model: Path, good: Candidate, folder: Path, environment: dict[str, str]) -> int:
    """Compile what atc refuses, so that the other files of the set are stopped."""
    to = folder / "to" / "failing"
    to.mkdir()
    damaged = folder / "damaged.onnx"
    damaged.write_bytes(model.read_bytes()[:2000])
    try:
        compile_set(
            damaged, good, interface_of(read_model(model)), to, soc_version="Ascend910B3", environment=environment
        )
    except CompileError:
        return 1
    finally:
        shutil.rmtree(to)
    return 0


if __name__ == "__main__":
    main()
