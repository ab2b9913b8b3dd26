"""Do artifacts of one time class take one time? Seven INT8 recipes and float32, their classes beside their times.

    python -m benchmarks.time_classes [--bench DIR] [--targets onnxruntime openvino] [--threads 1] [--rounds 15]

One row for each recipe: its numerics class, its time class (the first digits), and milliseconds per call at three
shapes, the median over rounds and the half of its interval. All recipes of a target are timed in one process, one after
the other within a round and in the opposite order in the next one. Then, for each shape: the spread of medians within
the classes that have several members, and between the medians of classes. A sound class has a spread no larger than the
noise of a single row. `--bench` is a folder as `benchmarks.int8_speed` takes it; without one there is nothing to do.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.int8_speed import OURS, REPOSITORY, Bench, candidate, random_feeds, times_ms
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.targets import open_target
from workbench.targets.base import Feeds, Session
from workbench.targets.classes import numerics_class, time_class
from workbench.values.candidate import Quantization, Serving

SHAPES = ((1, 16), (1, 64), (8, 32))

MINMAX = replace(OURS, algorithm="minmax")
RECIPES = {
    "float32": Quantization(),
    "minmax": MINMAX,
    "mse": OURS,
    "percentile": replace(OURS, algorithm="percentile", percentile=99.99),
    "symmetric": replace(MINMAX, activation_symmetric=True),
    "by tensor": replace(MINMAX, weight_granularity="tensor"),
    "attention in float": replace(MINMAX, attention_matmul=False),
    "mse, attention in float": replace(OURS, attention_matmul=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    recipe: str
    numerics: str
    times: tuple[str, ...]  # by shape
    session: Session

    def run(self, feeds: Feeds) -> np.ndarray:
        return np.asarray(next(iter(self.session.run(feeds).values())))


def rows_of(
    bench: Bench, target_name: str, threads: int, to: Path, record_of: Callable[[Quantization], QuantizationRecord]
) -> list[Row]:
    target, model, made = open_target(target_name), read_model(bench.model), []
    for number, (name, quantization) in enumerate(RECIPES.items()):
        chosen = replace(candidate(target_name, quantization), serving=Serving(intra_op_threads=threads))
        lowered, compiled = to / target_name / f"{number}-lowered", to / target_name / f"{number}-compiled"
        lowered.mkdir(parents=True)
        compiled.mkdir()
        record = record_of(quantization) if quantization.calibrated else None
        artifact = target.compile(target.lower(model, chosen, record, lowered), chosen, compiled)
        made.append(
            Row(
                recipe=name,
                numerics=numerics_class(target, artifact, compiled, chosen),
                times=tuple(time_class(target, artifact, compiled, chosen, batch=b, length=n) for b, n in SHAPES),
                session=target.open(artifact, compiled, chosen),
            )
        )
    return made


def print_table(rows: list[Row], rounds: int) -> None:
    measured = {shape: times_ms([row.run for row in rows], random_feeds(*shape), rounds) for shape in SHAPES}
    print(f"{'recipe':26}{'numerics':>10}{'time':>10}" + "".join(f"{shape!s:>20}" for shape in SHAPES))
    for index, row in enumerate(rows):
        cells = ""
        for shape in SHAPES:
            low, middle, high = np.percentile(measured[shape][index], [25, 50, 75])
            cells += f"{f'{middle:.2f} ± {(high - low) / 2:.2f}':>20}"
        print(f"{row.recipe:26}{row.numerics[:8]:>10}{row.times[0][:8]:>10}{cells}")
    print(f"{len({row.times for row in rows})} time classes, {len({row.numerics for row in rows})} numerics classes")
    for place, shape in enumerate(SHAPES):
        members = defaultdict(list)
        for row, found in zip(rows, measured[shape], strict=True):
            members[row.times[place]].append(float(np.median(found)))
        within = [max(times) / min(times) - 1 for times in members.values() if len(times) > 1]
        middles = [float(np.median(times)) for times in members.values()]
        print(
            f"at {shape}: within a class {max(within, default=0.0):.1%} at most, between classes "
            f"{max(middles) / min(middles) - 1:.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--targets", nargs="+", default=["onnxruntime", "openvino"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if not list(arguments.bench.glob("*.onnx")):
        sys.exit(f"{arguments.bench}: no model there; name a folder with --bench.")
    bench = Bench(arguments.bench.resolve())
    model = read_model(bench.model)
    layers = quantizable_layers(normalized(load_graph(model)))
    statistics = observe(model, bench.calibration(8))

    def record_of(quantization: Quantization) -> QuantizationRecord:
        return derive_record(model, recipe_of(quantization, layers), statistics, lambda: bench.calibration(8))

    with tempfile.TemporaryDirectory(prefix="workbench-time-classes-") as folder:
        for target in arguments.targets:
            print(f"\n{target} on {platform.machine()}, {arguments.threads} threads, {arguments.rounds} rounds")
            rows = rows_of(bench, target, arguments.threads, Path(folder), record_of)
            print_table(rows, arguments.rounds)
            for row in rows:
                row.session.close()


if __name__ == "__main__":
    main()
