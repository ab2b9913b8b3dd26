"""Does the interval of the speedup tell the truth on this machine? Run by hand: it times, so it is no test.

    python -m benchmarks.repeatability_of_timing [--runs 20] [--calls 200] [--load]

Times a small encoder-like model against itself (true speedup 1) and against one with twice the layers (true speedup
near 2, unknown exactly), again and again, and counts how often the interval holds 1, how far the speedups of the runs
spread, and how far the absolute times do. `--load` keeps another process busy on and off.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.evaluation.measure import TimingProtocol, time_against_baseline
from workbench.graph.read import read_model
from workbench.targets import open_target
from workbench.targets.base import Feeds, Session
from workbench.values.candidate import Candidate
from workbench.values.measurement import Latency

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
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime")
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


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--calls", type=int, default=200)
    arguments.add_argument("--load", action="store_true")
    given = arguments.parse_args()
    protocol = TimingProtocol(calls=given.calls)
    generator = np.random.default_rng(0)
    feeds: list[Feeds] = [
        {"x": generator.normal(size=(1, LENGTHS[i % 5], WIDTH)).astype(np.float32)} for i in range(20)
    ]
    with tempfile.TemporaryDirectory() as folder, load(given.load):
        one, same, double = (perceptron(Path(folder, name), n) for name, n in (("one", 4), ("same", 4), ("double", 8)))
        repeat("equal models", one, same, feeds, given.runs, protocol)
        repeat("half the layers", one, double, feeds, given.runs, protocol)


if __name__ == "__main__":
    main()
