"""What is measured of one candidate for a table: its answers, and its times at some shapes in rounds."""

from __future__ import annotations

import contextlib
import datetime
import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.recorded.parts import Json
from benchmarks.recorded.tables import Floats
from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.bench import Bench, device_lock
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.measure import collection_paused
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.outcomes import per_sample
from workbench.targets.base import Feeds, Session
from workbench.targets.classes import numerics_class, time_class
from workbench.values.candidate import Candidate
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate

Shape = tuple[int, int]
_FEEDS = 4
_WARM_UP = 2


def built(bench: Bench, experiment: Experiment, candidate: Candidate) -> Json:
    """Compiled: its classes, its files, and seconds."""
    began = time.monotonic()
    artifact, directory = artifact_of(experiment, candidate, bench)
    took = time.monotonic() - began
    target = bench.target(candidate)
    return {
        "build_s": took,
        "numerics": numerics_class(target, artifact, directory, candidate),
        "time": time_class(target, artifact, directory, candidate, batch=1, length=longest(experiment)),
        "size_bytes": artifact.size_bytes,
    }


def longest(experiment: Experiment) -> int:
    assert experiment.dataset.preprocessor is not None, "the tables are of texts"
    return experiment.dataset.preprocessor.max_length


@contextlib.contextmanager
def opened(bench: Bench, experiment: Experiment, candidate: Candidate) -> Iterator[tuple[Session, Session]]:
    """Sessions of the candidate and of the float baseline."""
    with contextlib.ExitStack() as sessions:
        found = []
        for each in (candidate, experiment.baseline):
            artifact, directory = artifact_of(experiment, each, bench)
            found.append(bench.target(each).open(artifact, directory, each))
            sessions.callback(found[-1].close)
        yield found[0], found[1]


def answers(bench: Bench, experiment: Experiment, candidate: Candidate) -> Json:
    """Which samples of the validation split it got right, as hex digits of a bit each, and seconds."""
    artifact, _ = artifact_of(experiment, candidate, bench)
    with opened(bench, experiment, candidate) as (session, baseline):
        began = time.monotonic()
        scores = AccuracyPass(
            experiment, candidate, bench, "validation", artifact=artifact, session=session, baseline=baseline
        )
        outcomes = scores.full()
        took = time.monotonic() - began
        cached = scores.from_store
        scores.close()
    right = np.asarray(per_sample(outcomes)) > 0.5
    return {"right": np.packbits(right).tobytes().hex(), "samples": len(right), "score_s": took, "cached": cached}


def right_of(answer: Json) -> Floats:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(answer["right"]), dtype=np.uint8), count=answer["samples"])
    return bits.astype(np.float64)


def timed(bench: Bench, experiment: Experiment, candidate: Candidate, shapes: Sequence[Shape], rounds: int) -> Json:
    """Milliseconds [rounds, shapes] of one call of each shape, and of the float baseline [rounds] beside them."""

    def feeds(batch: int, length: int) -> list[Feeds]:
        return timed_feeds(
            experiment.dataset, experiment.model, "validation", count=_FEEDS, batch=batch, seed=0, length=length
        )

    given = [feeds(*shape) for shape in shapes]
    yardstick = feeds(1, longest(experiment) // 2)
    with (
        opened(bench, experiment, candidate) as (session, baseline),
        device_lock(bench.device_lock, wait_s=3600.0, report=print),
    ):
        for some in given:
            for number in range(_WARM_UP):
                session.run(some[number])
        baseline.run(yardstick[0])
        found, beside = [], []
        for number in range(rounds):
            with collection_paused():
                row = [0.0] * len(shapes)
                for place in range(len(shapes)) if number % 2 == 0 else reversed(range(len(shapes))):
                    row[place] = _call_ms(session, given[place][number % _FEEDS])
                beside.append(min(_call_ms(baseline, yardstick[(number + i) % _FEEDS]) for i in range(3)))
            found.append(row)
    return {"ms": found, "yardstick_ms": beside}


def _call_ms(session: Session, feed: Feeds) -> float:
    began = time.perf_counter_ns()
    session.run(feed)
    return (time.perf_counter_ns() - began) / 1e6


def corrected(found: Json, anchor_ms: float) -> Floats:
    """Times [rounds, shapes] as the machine gives them at the speed of the recording's beginning."""
    return np.array(found["ms"]) * anchor_ms / float(np.median(found["yardstick_ms"]))


def curve_of(times: Floats, shapes: Sequence[Shape], lengths: Sequence[int], threads: int) -> BatchCurve:
    """The curve at other lengths than were timed: between two of them, time is a line."""
    batches = sorted({batch for batch, _ in shapes})
    timed_at = sorted({length for _, length in shapes})
    points = []
    for length in lengths:
        for batch in batches:
            own = np.stack([times[:, shapes.index((batch, each))] for each in timed_at], axis=1)
            rounds = np.array([np.interp(length, timed_at, row) for row in own])
            low, middle, high = (float(q) for q in np.quantile(rounds, [0.25, 0.5, 0.75]))
            points.append(
                CurvePoint(
                    batch=batch,
                    length=length,
                    calls=len(rounds),
                    p50_ms=Estimate(value=middle, low=low, high=high, confidence=0.5),
                    mean_ms=float(rounds.mean()),
                    quantiles_ms=tuple(float(q) for q in np.quantile(rounds, np.linspace(0, 1, 21))),
                )
            )
    return BatchCurve(points=tuple(points), stepped=False, threads=threads, clock="host")


def machine() -> Json:
    """Where a table was recorded."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    load = Path("/proc/loadavg")
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(names),
        "load": load.read_text().split()[0] if load.exists() else "",
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "onnx", "onnxruntime")},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
