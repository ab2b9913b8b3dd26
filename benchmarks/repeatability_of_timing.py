"""Does the interval of the speedup tell the truth on this machine? Run by hand: it times, so it is no test.

    python -m benchmarks.repeatability_of_timing [--runs 20] [--calls 200] [--load] [--processes 12]

Times a small encoder-like model against itself (true speedup 1) and against one with twice the layers (true speedup
near 2, unknown exactly), again and again, and counts how often the interval holds 1, how far the speedups of the runs
spread, and how far the absolute times do. `--load` keeps another process busy on and off.

With `--processes` the same artifacts are timed in so many processes of their own, one after the other: calls against
the baseline, and a batch curve. Any two of them are held against each other as an audit of reuse does it
(`values.reuse`). Printed: how far honest measurements of one artifact differ beyond what the rounds inside them say
(`BETWEEN` is such a figure), and how many pairs an audit would call different, without it and with it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.evaluation.measure import TimingProtocol, time_against_baseline
from workbench.evaluation.raw_times import RawTimes, ratio_by_rounds
from workbench.graph.read import read_model
from workbench.prediction.curve import Yardstick, at_first_speed, measure_curve
from workbench.targets import open_target
from workbench.targets.base import Feeds, Session
from workbench.values.candidate import Candidate, Serving
from workbench.values.measurement import BatchCurve, Latency
from workbench.values.reuse import BETWEEN, Audit, audit_of_curve, audit_of_latency, error_of

WIDTH = 256
LENGTHS = (16, 24, 32, 48, 64)
BUSY = "import time\nwhile True:\n    end = time.time() + 0.4\n    while time.time() < end: pass\n    time.sleep(0.4)"


def perceptron(folder: Path, layers: int) -> Session:
    """An open session of `layers` times MatMul and Tanh over [batch, length, 256]."""
    generator = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for i in range(layers):
        weight = (generator.normal(size=(WIDTH, 4 * WIDTH)) / 16).astype(np.float32)
        weights += [numpy_helper.from_array(weight, f"up{i}"), numpy_helper.from_array(weight.T / 4, f"down{i}")]
        nodes += [
            helper.make_node("MatMul", [name, f"up{i}"], [f"u{i}"]),
            helper.make_node("Tanh", [f"u{i}"], [f"t{i}"]),
            helper.make_node("MatMul", [f"t{i}", f"down{i}"], [f"y{i}"]),
        ]
        name = f"y{i}"
    shape = ["batch", "length", WIDTH]
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        weights,
    )
    folder.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime", serving=Serving(intra_op_threads=1))
    for part in ("lowered", "compiled"):
        (folder / part).mkdir()
    lowered = target.lower(read_model(folder / "m.onnx"), candidate, None, folder / "lowered")
    artifact = target.compile(lowered, candidate, folder / "compiled")
    return target.open(artifact, folder / "compiled", candidate)


@contextlib.contextmanager
def load(wanted: bool) -> Iterator[None]:
    """A process that is busy every other 0.4 s on every CPU, while the block runs."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)] if wanted else []
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def repeat(
    title: str, candidate: Session, baseline: Session, feeds: list[Feeds], runs: int, protocol: TimingProtocol
) -> None:
    began = time.perf_counter()
    found: list[Latency] = [time_against_baseline(candidate, baseline, feeds, 1, protocol)[0] for _ in range(runs)]
    seconds = (time.perf_counter() - began) / runs
    speedups = np.array([latency.speedup.value for latency in found])
    widths = np.array([latency.speedup.high - latency.speedup.low for latency in found])
    p50 = np.array([latency.p50_ms.value for latency in found])
    middle = float(np.median(speedups))
    print(f"{title}: {runs} runs of {found[0].samples} calls, {seconds:.2f} s each")
    for truth, what in ((1.0, "holds 1.0"), (middle, f"holds the median of the runs, {middle:.3f}")):
        held = sum(latency.speedup.low <= truth <= latency.speedup.high for latency in found)
        print(f"  interval {what:<42} {held}/{runs}")
    print(
        f"  speedup      {speedups.min():.3f} to {speedups.max():.3f}, interval width {np.median(widths):.3f} (median)"
    )
    print(f"  P50 in ms    {p50.min():.3f} to {p50.max():.3f}: {p50.max() / p50.min() - 1:.1%} apart")
    print(f"  quiet        {sum(latency.quiet for latency in found)}/{runs}; the last said: {found[-1].verdict}")


Measured = tuple[Latency, RawTimes, BatchCurve]
FIRST_MS = 1.0
"""The speed that curves are brought to; any number, as long as it is the same in every process."""


def one_process(calls: int) -> Measured:
    """Everything opened anew and timed once: half the layers against twice as many."""
    generator = np.random.default_rng(0)
    feeds = feeds_of_lengths(generator)

    def feeds_of(batch: int, length: int) -> Sequence[Feeds]:
        return [{"x": generator.normal(size=(batch, length, WIDTH)).astype(np.float32)} for _ in range(2)]

    with tempfile.TemporaryDirectory() as folder:
        one, double = perceptron(Path(folder, "one"), 4), perceptron(Path(folder, "double"), 8)
        latency, raw = time_against_baseline(one, double, feeds, 1, TimingProtocol(calls=calls))
        yardstick = Yardstick(
            session=double, batch=1, length=64, feeds=feeds_of(1, 64), first_ms=lambda now_ms: FIRST_MS
        )
        curve = measure_curve(one, (1, 8), (16, 64), feeds_of, threads=1, stepped=False, yardstick=yardstick)
    return latency, raw, at_first_speed(curve)


def between_processes(count: int, calls: int) -> None:
    """Print how far measurements differ between processes, and what audits would make of it."""
    context = multiprocessing.get_context("spawn")
    found: list[Measured] = []
    for _ in range(count):  # one after the other: nobody is timed beside another
        with context.Pool(1) as pool:
            found.append(pool.apply(one_process, (calls,)))
    pairs = list(itertools.combinations(found, 2))
    held = sum(latency.holds for latency, _, _ in found)
    print(f"{count} processes, {len(pairs)} pairs; times that may be reused: {held} of {count}")

    def latency_audit(own: Measured, reused: Measured, between: float) -> Audit:
        return audit_of_latency(
            own[0], reused[0], "", ratio=ratio_by_rounds(own[1], reused[1], seed=0), between=between
        )

    def curve_audit(own: Measured, reused: Measured, between: float) -> Audit:
        return audit_of_curve(own[2], reused[2], "", between=between)

    audits: dict[str, Callable[[Measured, Measured, float], Audit]] = {"calls": latency_audit, "curve": curve_audit}
    for name, audit in audits.items():
        inside = [audit(own, reused, 0.0) for own, reused in pairs]
        differences = np.array([math.log(each.ratio.value) for each in inside])
        errors = np.array([error_of(each.ratio) for each in inside])
        excess = max(0.0, float(np.mean(differences**2 - errors**2)) / 2)
        print(
            f"  {name}: two differ by {np.median(np.abs(differences)):.1%} (median), {np.abs(differences).max():.1%} "
            f"(most); by their rounds {np.median(errors):.1%} would be one standard error; "
            f"between measurements {math.sqrt(excess):.1%}"
        )
        for between in (0.0, BETWEEN):
            wrong = sum(audit(own, reused, between).agrees is False for own, reused in pairs)
            print(f"    with {between:.1%} between measurements {wrong} of {len(pairs)} pairs would stop the reuse")


def feeds_of_lengths(generator: np.random.Generator) -> list[Feeds]:
    return [{"x": generator.normal(size=(1, LENGTHS[i % 5], WIDTH)).astype(np.float32)} for i in range(20)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--calls", type=int, default=200)
    arguments.add_argument("--load", action="store_true")
    arguments.add_argument("--processes", type=int, default=0)
    given = arguments.parse_args()
    if given.processes:
        with load(given.load):
            between_processes(given.processes, given.calls)
        return
    protocol = TimingProtocol(calls=given.calls)
    generator = np.random.default_rng(0)
    feeds = feeds_of_lengths(generator)
    with tempfile.TemporaryDirectory() as folder, load(given.load):
        one, same, double = (perceptron(Path(folder, name), n) for name, n in (("one", 4), ("same", 4), ("double", 8)))
        repeat("equal models", one, same, feeds, given.runs, protocol)
        repeat("half the layers", one, double, feeds, given.runs, protocol)


if __name__ == "__main__":
    main()
