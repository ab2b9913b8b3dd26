"""One observing pass and four algorithms against ONNX Runtime's calibrators: time and memory. Run by hand.

    python -m tests.benchmarks.calibration [--bench DIR] [--samples 512] [--threads 2]

Every row is a fresh process over the same sentences, padded to 64 tokens (ONNX Runtime's calibrators need rectangular
data) in batches of 8. Seconds count from reading the model to the last range; memory is the peak resident set of the
process, interpreter and tokenizer included. `--bench` holds a model with `input_ids` and `attention_mask`, its
`tokenizer.json` and `calibration.csv` (column `text`).
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator
from tokenizers import Tokenizer

from workbench.candidate import Quantization
from workbench.graph import read_model
from workbench.quantization.algorithms import choose
from workbench.quantization.observe import Feeds, observe

REPOSITORY = Path(__file__).parent.parent.parent
LENGTH, BATCH = 64, 8
MINMAX = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=True,
    keep_float=0,
)
RECIPES = (
    MINMAX,
    replace(MINMAX, algorithm="percentile", percentile=99.99),
    replace(MINMAX, algorithm="kl"),
    replace(MINMAX, algorithm="mse"),
)
LABELS = {
    "bare": "forward pass alone",
    "observe": "workbench, observing pass",
    "workbench": "workbench, all four",
    "MinMax": "onnxruntime MinMax",
    "Percentile": "onnxruntime Percentile",
    "Entropy": "onnxruntime Entropy",
}


def model_in(bench: Path) -> Path:
    (model,) = bench.glob("*.onnx")
    return model


def batches(bench: Path, samples: int) -> Iterator[Feeds]:
    tokenizer = Tokenizer.from_file(str(bench / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    with (bench / "calibration.csv").open(encoding="utf-8", newline="") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)][:samples]
    if len(texts) < samples:
        raise SystemExit(f"{bench / 'calibration.csv'} has {len(texts)} sentences, {samples} are asked for.")
    for start in range(0, samples, BATCH):
        encoded = tokenizer.encode_batch(texts[start : start + BATCH])
        yield {
            "input_ids": np.array([e.ids for e in encoded], np.int64),
            "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
        }


class Reader(CalibrationDataReader):
    def __init__(self, feeds: Iterator[Feeds]) -> None:
        self.feeds = feeds

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def bare(bench: Path, samples: int, threads: int) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model_in(bench)), options, providers=["CPUExecutionProvider"])
    for feeds in batches(bench, samples):
        session.run(None, feeds)


def ours(bench: Path, samples: int, threads: int, recipes: tuple[Quantization, ...]) -> None:
    statistics = observe(read_model(model_in(bench)), batches(bench, samples), threads=threads)
    for recipe in recipes:
        choose(statistics, recipe)


def theirs(bench: Path, samples: int, method: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            model_in(bench),
            ["MatMul", "Gemm"],
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod[method],
        )
        calibrator.collect_data(Reader(batches(bench, samples)))
        calibrator.compute_data()


def measure(method: str, bench: Path, samples: int, threads: int) -> dict[str, float]:
    """Runs in the child process."""
    began = time.perf_counter()
    if method == "bare":
        bare(bench, samples, threads)
    elif method in ("observe", "workbench"):
        ours(bench, samples, threads, RECIPES if method == "workbench" else ())
    else:
        theirs(bench, samples, method)
    seconds = time.perf_counter() - began
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {"seconds": seconds, "peak_mb": peak_kib * 1024 / 1e6}


def in_fresh_process(method: str, bench: Path, samples: int, threads: int) -> dict[str, float]:
    arguments = ["--bench", str(bench), "--samples", str(samples), "--threads", str(threads), "--child", method]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.calibration", *arguments],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", choices=LABELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    bench, threads = arguments.bench.resolve(), arguments.threads
    if arguments.child:
        print(json.dumps(measure(arguments.child, bench, arguments.samples, threads)))
        return
    print(f"{arguments.samples} sentences of {LENGTH} tokens, batches of {BATCH}, {threads} threads")
    print(f"{'':28}{'seconds':>9}{'peak MB':>9}")
    for method, label in LABELS.items():
        row = in_fresh_process(method, bench, arguments.samples, threads)
        print(f"{label:28}{row['seconds']:9.1f}{row['peak_mb']:9.0f}", flush=True)
    print("\nworkbench, all four: memory by number of sentences")
    for samples in (128, 512, 1024):
        row = in_fresh_process("workbench", bench, samples, threads)
        print(f"{samples:>27} {row['seconds']:9.1f}{row['peak_mb']:9.0f}", flush=True)


if __name__ == "__main__":
    main()
