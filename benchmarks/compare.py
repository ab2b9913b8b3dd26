"""What comparing two models layer by layer costs beyond running both once. Run by hand.

    python -m benchmarks.compare [--bench DIR] [--samples 64] [--rounds 5]

Float against INT8 of the model in `--bench` (with `input_ids`, `attention_mask`, `tokenizer.json`, `calibration.csv`).
"plain" is both models compiled and opened as they are served, one after the other on two threads; "compare" is the
whole comparison with its two probes, one thread each. Both take the same batches, in turns; ratios are medians.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.calibration import REPOSITORY, batches, model_in
from workbench.graph.read import load_graph, read_model
from workbench.quantization.algorithms import choose
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds, observe
from workbench.study.compared import Comparison
from workbench.study.comparison import Side, compare
from workbench.targets import open_target
from workbench.targets.base import Session
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Serving

THREADS = 2


class Watch:
    """Batches that note when the first of them is asked for: what comes before is opening, not running."""

    def __init__(self, feeds: list[Feeds]) -> None:
        self._feeds, self.began = feeds, 0.0

    def __iter__(self) -> Iterator[Feeds]:
        self.began = time.perf_counter()
        yield from self._feeds


def prepared(bench: Path, feeds: list[Feeds], to: Path) -> tuple[Path, Path, Session, Session]:
    """Lowered float and INT8 files, and both compiled and opened."""
    model = read_model(model_in(bench))
    target = open_target("onnxruntime")
    plain = Candidate(target="onnxruntime", serving=Serving(intra_op_threads=THREADS))
    record = choose(observe(model, feeds), EVERYTHING_INT8, proto=normalized(load_graph(model)))
    files, sessions = [], []
    for name, candidate in (("float", plain), ("int8", replace(plain, quantization=EVERYTHING_INT8))):
        lowered, compiled = to / name, to / f"{name}-compiled"
        lowered.mkdir()
        compiled.mkdir()
        file = target.lower(model, candidate, record if name == "int8" else None, lowered)
        files.append(file)
        sessions.append(target.open(target.compile(file, candidate, compiled), compiled, candidate))
    return files[0], files[1], sessions[0], sessions[1]


def run_all(session: Session, feeds: list[Feeds]) -> float:
    """Seconds."""
    began = time.perf_counter()
    for batch in feeds:
        session.run(batch)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    feeds = batches(arguments.bench.resolve(), arguments.samples, "bins")
    with tempfile.TemporaryDirectory() as folder:
        a, b, float_session, int8_session = prepared(arguments.bench.resolve(), feeds, Path(folder))
        one, other = (Side(about=file.parent.name, engine="onnxruntime", path=file) for file in (a, b))
        found: dict[str, Comparison] = {}
        rows: dict[str, list[tuple[float, float, float]]] = {"compare": [], "compare --every": []}
        for session in (float_session, int8_session):
            session.run(feeds[0])
        for _ in range(arguments.rounds):
            for name, every in (("compare", False), ("compare --every", True)):
                plain = run_all(float_session, feeds) + run_all(int8_session, feeds)
                watch, began = Watch(feeds), time.perf_counter()
                found[name] = compare(one, other, watch, data="calibration", every=every)
                ended = time.perf_counter()
                rows[name].append((plain, ended - watch.began, watch.began - began))
    print(f"{arguments.samples} sentences in batches of {len(next(iter(feeds[0].values())))}, {THREADS} threads")
    print(f"{'':18}{'tensors':>8}{'plain s':>9}{'compare s':>11}{'ratio':>7}{'opening s':>11}")
    for name, measured in rows.items():
        plain, run, opening = (statistics.median(column) for column in zip(*measured, strict=True))
        ratio = statistics.median(row[1] / row[0] for row in measured)
        print(f"{name:18}{len(found[name].rows):8}{plain:9.2f}{run:11.2f}{ratio:7.2f}{opening:11.2f}")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    print(f"peak resident memory of this process: {peak_kib * 1024 / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
