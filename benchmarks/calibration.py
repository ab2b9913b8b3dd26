"""One observing pass, and every record derived from it, against ONNX Runtime's calibrators. Run by hand.

    python -m benchmarks.calibration [--bench DIR] [--samples 1024] [--peer-samples 64] [--threads 2] [--rounds 3]

Sentences are in batches of 8, padded to 64 tokens (`fixed`, which ONNX Runtime's calibrators need) or to the smallest
bin of 16, 32 and 64 that holds the batch's longest sentence (`bins`, as a data set batches them). Every measurement
is a fresh process; those of one table take turns, `--rounds` times. Seconds are medians and count from reading the
model to the last range, without tokenizing. Ratios are medians over the rounds, against the bare forward pass of the
same round over the same sentences. Memory is the peak resident set of the process, interpreter and tokenizer
included. `--bench` holds a model with `input_ids` and `attention_mask`, its `tokenizer.json` and `calibration.csv`
(column `text`).
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator
from tokenizers import Tokenizer

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.algorithms import choose
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.values.candidate import EVERYTHING_INT8, Algorithm

REPOSITORY = Path(__file__).parent.parent
BATCH = 8
BINS = {"fixed": (64,), "bins": (16, 32, 64)}
PEERS = ("MinMax", "Percentile", "Entropy")
ALGORITHMS: tuple[Algorithm, ...] = ("minmax", "moving_average", "percentile", "kl", "mse", "ifmr", "hfmg")


def model_in(bench: Path) -> Path:
    (model,) = bench.glob("*.onnx")
    return model


def batches(bench: Path, samples: int, padding: str) -> list[Feeds]:
    bins = BINS[padding]
    tokenizer = Tokenizer.from_file(str(bench / "tokenizer.json"))
    tokenizer.enable_truncation(bins[-1])
    tokenizer.no_padding()
    with (bench / "calibration.csv").open(encoding="utf-8", newline="") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)][:samples]
    if len(texts) < samples:
        raise SystemExit(f"{bench / 'calibration.csv'} has {len(texts)} sentences, {samples} are asked for.")
    found: list[Feeds] = []
    for start in range(0, samples, BATCH):
        encoded = [e.ids for e in tokenizer.encode_batch(texts[start : start + BATCH])]
        longest = max(len(ids) for ids in encoded)
        length = next(size for size in bins if longest <= size)
        ids, mask = np.zeros((len(encoded), length), np.int64), np.zeros((len(encoded), length), np.int64)
        for row, one in enumerate(encoded):
            ids[row, : len(one)], mask[row, : len(one)] = one, 1
        found.append({"input_ids": ids, "attention_mask": mask})
    return found


class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package ships no types
    def __init__(self, feeds: list[Feeds]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def bare(bench: Path, feeds: list[Feeds], threads: int) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model_in(bench)), options, providers=["CPUExecutionProvider"])
    for batch in feeds:
        session.run(None, batch)


def peer(bench: Path, feeds: list[Feeds], method: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            model_in(bench),
            ["MatMul", "Gemm"],
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod[method],
        )
        calibrator.collect_data(Reader(feeds))
        calibrator.compute_data()


def derivations(bench: Path, feeds: list[Feeds], threads: int) -> dict[str, float]:
    """Algorithm → seconds from statistics to record; all but the named setting as `EVERYTHING_INT8`."""
    model = read_model(model_in(bench))
    seen = observe(model, feeds, threads=threads)
    proto = normalized(load_graph(model))
    layers = quantizable_layers(proto)
    recipes: dict[str, ModelRecipe] = {
        name: recipe_of(
            replace(EVERYTHING_INT8, algorithm=name, percentile=99.99 if name == "percentile" else None), layers
        )
        for name in ALGORITHMS
    }
    recipes["mse, weights too"] = recipe_of(replace(EVERYTHING_INT8, algorithm="mse", weight_algorithm="mse"), layers)
    seconds = {}
    for name, recipe in recipes.items():
        began = time.perf_counter()
        choose(seen, recipe, proto=proto)
        seconds[name] = time.perf_counter() - began
    return seconds


def measure(method: str, bench: Path, samples: int, padding: str, threads: int) -> dict[str, float]:
    """Runs in the child process."""
    feeds = batches(bench, samples, padding)
    if method == "derive":
        return derivations(bench, feeds, threads)
    began = time.perf_counter()
    if method == "bare":
        bare(bench, feeds, threads)
    elif method == "observe":
        observe(read_model(model_in(bench)), feeds, threads=threads)
    else:
        peer(bench, feeds, method)
    seconds = time.perf_counter() - began
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {"seconds": seconds, "peak_mb": peak_kib * 1024 / 1e6}


def in_fresh_process(method: str, bench: Path, samples: int, padding: str, threads: int) -> dict[str, float]:
    arguments = ["--bench", str(bench), "--samples", str(samples), "--threads", str(threads)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.calibration", *arguments, "--child", method, "--padding", padding],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{method} over {samples} sentences failed ({done.returncode}):\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])  # the calibrators print progress before
    return measured


def table(methods: dict[str, str], bench: Path, samples: int, padding: str, threads: int, rounds: int) -> None:
    """One row per method (name → label); the first one is what the others are compared with."""
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    for _ in range(rounds):
        for method in methods:
            runs[method].append(in_fresh_process(method, bench, samples, padding, threads))
    first = runs[next(iter(methods))]
    print(f"\n{samples} sentences, {padding}, batches of {BATCH}, {threads} threads")
    print(f"{'':28}{'seconds':>9}{'ratio':>8}{'peak MB':>9}")
    for method, label in methods.items():
        seconds = statistics.median(run["seconds"] for run in runs[method])
        ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(runs[method], first, strict=True))
        peak = max(run["peak_mb"] for run in runs[method])
        print(f"{label:28}{seconds:9.1f}{ratio:8.2f}{peak:9.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--peer-samples", type=int, default=64, help="sentences of the table with the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=("bare", "observe", "derive", *PEERS), help=argparse.SUPPRESS)
    parser.add_argument("--padding", choices=BINS, default="fixed", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    bench, threads, rounds = arguments.bench.resolve(), arguments.threads, arguments.rounds
    if arguments.child:
        print(json.dumps(measure(arguments.child, bench, arguments.samples, arguments.padding, threads)))
        return
    ours = {"bare": "bare forward pass", "observe": "workbench, observing pass"}
    for padding in BINS:
        table(ours, bench, arguments.samples, padding, threads, rounds)
    table(ours, bench, arguments.samples // 4, "fixed", threads, 1)
    peers = {**ours, **{method: f"onnxruntime {method}" for method in PEERS}}
    table(peers, bench, arguments.peer_samples, "fixed", threads, 1)
    print("\nfrom statistics to a record, seconds")
    for name, seconds in in_fresh_process("derive", bench, arguments.peer_samples, "fixed", threads).items():
        print(f"{name:28}{seconds:9.3f}")


if __name__ == "__main__":
    main()
