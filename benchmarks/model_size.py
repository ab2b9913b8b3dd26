"""Seconds and memory of calibrating large models: a bare pass, the workbench, ONNX Runtime's MinMax, NNCF. By hand.

    python -m benchmarks.model_size [--sizes base,large] [--rounds 1] [--nncf-python PATH] [--external] [--keep DIR]

64 sequences of 128 tokens in batches of 8, two threads, random weights of BERT's shapes (large_models.py). Every
measurement is a fresh process, and those of one model take turns. Memory is the peak resident set of a process and its
children together, looked at every tenth of a second. `sweep` is a static candidate's way: observe, choose, lower,
compile, load, run. NNCF runs in an interpreter of its own, made with `pip install nncf onnx onnxruntime`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from benchmarks.large_models import SHAPES, write

REPOSITORY = Path(__file__).parent.parent
SEQUENCES, BATCH, LENGTH = 64, 8, 128
WAYS = ("bare", "calibrate", "sweep", "minmax", "nncf")
LABELS = {
    "bare": "bare pass",
    "calibrate": "workbench calibrate",
    "sweep": "workbench, a static candidate",
    "minmax": "ONNX Runtime MinMax",
    "nncf": "NNCF",
}
_POLL_S = 0.1

NNCF = """
import sys, numpy as np, nncf, onnx
model = onnx.load(sys.argv[1])
with np.load(sys.argv[2]) as stored:
    count = sum(name.startswith("input_ids_") for name in stored)
    feeds = [{name: stored[f"{name}_{i}"] for name in ("input_ids", "attention_mask")} for i in range(count)]
done = nncf.quantize(model, nncf.Dataset(feeds), subset_size=count, model_type=nncf.ModelType.TRANSFORMER)
onnx.save(done, sys.argv[3])
"""


def feeds(vocabulary: int) -> list[dict[str, npt.NDArray[np.int64]]]:
    rng = np.random.default_rng(1)
    return [
        {
            "input_ids": rng.integers(0, vocabulary, (BATCH, LENGTH)),
            "attention_mask": np.ones((BATCH, LENGTH), np.int64),
        }
        for _ in range(SEQUENCES // BATCH)
    ]


def stored(data: Path) -> list[dict[str, npt.NDArray[np.int64]]]:
    with np.load(data) as arrays:
        count = sum(name.startswith("input_ids_") for name in arrays)
        return [{name: arrays[f"{name}_{i}"] for name in ("input_ids", "attention_mask")} for i in range(count)]


# --- in the child ----------------------------------------------------------------------------------------------------


def bare(model: Path, data: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    for batch in stored(data):
        session.run(None, batch)


def minmax(model: Path, data: Path, folder: Path) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package ships no types
        def __init__(self) -> None:
            self.feeds = iter(stored(data))

        def get_next(self) -> dict[str, npt.NDArray[np.int64]] | None:
            return next(self.feeds, None)

    quantize_static(
        model,
        folder / "minmax.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul", "Gemm"],
        per_channel=True,
        calibrate_method=CalibrationMethod.MinMax,
        use_external_data_format=True,
    )


def static_candidate(path: Path, data: Path, folder: Path) -> None:
    from workbench.graph.door import open_foreign
    from workbench.graph.layers import quantizable_layers
    from workbench.graph.read import load_graph
    from workbench.quantization.calibrate import derive_record
    from workbench.quantization.lowering.normalize import normalized
    from workbench.quantization.observe import observe
    from workbench.quantization.recipe import recipe_of
    from workbench.targets import open_target
    from workbench.values.candidate import EVERYTHING_INT8, Candidate

    model, batches = open_foreign(path), stored(data)
    recipe = recipe_of(EVERYTHING_INT8, quantizable_layers(normalized(load_graph(model))))
    record = derive_record(model, recipe, observe(model, batches), lambda: batches)
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime", quantization=EVERYTHING_INT8)
    lowered, compiled = folder / "lowered", folder / "compiled"
    lowered.mkdir()
    compiled.mkdir()
    artifact = target.compile(target.lower(model, candidate, record, lowered), candidate, compiled)
    session = target.open(artifact, compiled, candidate)
    session.run(batches[0])
    session.close()


def child(way: str, model: Path, data: Path, folder: Path) -> None:
    if way == "bare":
        bare(model, data)
    elif way == "minmax":
        minmax(model, data, folder)
    else:
        static_candidate(model, data, folder)


# --- measuring -------------------------------------------------------------------------------------------------------


def measured(command: list[str], folder: Path) -> tuple[float, int]:
    """(seconds, bytes at the peak of all its processes together)."""
    began, peak = time.monotonic(), 0
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=stream,
            stderr=stream,
            env={**os.environ, "OMP_NUM_THREADS": "2", "XDG_CACHE_HOME": str(folder / "cache")},
        )
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            total = 0
            for each in (tree, *_children(tree)):
                try:
                    total += each.memory_info().rss
                except psutil.Error:
                    continue  # it has ended meanwhile
            peak = max(peak, total)
            time.sleep(_POLL_S)
    if process.returncode:
        words = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{words}")
    return time.monotonic() - began, peak


def _children(tree: psutil.Process) -> list[psutil.Process]:
    try:
        return tree.children(recursive=True)
    except psutil.Error:
        return []


def command_of(way: str, model: Path, data: Path, folder: Path, nncf_python: Path | None) -> list[str]:
    if way == "calibrate":
        out = str(folder / "out")
        return [sys.executable, "-m", "workbench", "calibrate", str(model), "--data", str(data), "--to", out]
    if way == "nncf":
        return [str(nncf_python), "-c", NNCF, str(model), str(data), str(folder / "nncf.onnx")]
    return [sys.executable, "-m", "benchmarks.model_size", "--child", way, str(model), str(data), str(folder)]


def table(size: str, ways: list[str], rounds: int, model: Path, data: Path, nncf_python: Path | None) -> None:
    runs: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            with tempfile.TemporaryDirectory(dir=model.parent) as folder:
                command = command_of(way, model, data, Path(folder), nncf_python)
                runs[way].append(measured(command, Path(folder)))
                seconds, peak = runs[way][-1]
                print(f"{size}: {LABELS[way]}: {seconds:.1f} s, {peak / 1e6:.0f} MB", file=sys.stderr, flush=True)
    weight = sum(file.stat().st_size for file in model.parent.glob(f"{model.stem}.*") if file.suffix != ".npz")
    print(f"\n{size}: {weight / 1e6:.0f} MB, {SEQUENCES} sequences of {LENGTH} tokens, 2 threads")
    print(f"{'':32}{'seconds':>9}{'times NNCF':>12}{'peak MB':>9}{'times the file':>16}")
    taken = {way: statistics.median(seconds for seconds, _ in runs[way]) for way in ways}
    for way in ways:
        peak = max(peak for _, peak in runs[way])
        ratio = f"{taken[way] / taken['nncf']:.2f}" if "nncf" in taken else "-"
        print(f"{LABELS[way]:32}{taken[way]:9.1f}{ratio:>12}{peak / 1e6:9.0f}{peak / weight:16.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="base,large", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--nncf-python", type=Path, help="an interpreter with NNCF")
    parser.add_argument("--external", action="store_true", help="models with external data")
    parser.add_argument("--keep", type=Path, help="folder to keep the models in")
    parser.add_argument("--child", nargs=4, metavar=("WAY", "MODEL", "DATA", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        way, *paths = arguments.child
        child(way, *map(Path, paths))
        return
    ways = [way for way in arguments.ways.split(",") if way != "nncf" or arguments.nncf_python is not None]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for size in arguments.sizes.split(","):
            external = arguments.external or size == "huge"
            model, data = folder / f"{size}{'_external' * external}.onnx", folder / f"{size}.npz"
            if not model.exists():
                write(SHAPES[size], model, external=external)
            arrays = {
                f"{name}_{i}": array
                for i, batch in enumerate(feeds(SHAPES[size].vocabulary))
                for name, array in batch.items()
            }
            np.savez(data, **arrays)
            table(size, ways, arguments.rounds, model, data, arguments.nncf_python)


if __name__ == "__main__":
    main()
