"""The serving model against the real service: P50, P99 and throughput of many settings, predicted and measured.

    python -m benchmarks.predicted_against_measured [FOLDER] [--passes 3] [--seconds 5] [--to FILE.json]
    python -m benchmarks.predicted_against_measured --until-quiet 12 [--resume]

FOLDER is laid out as bench/banking77: one .onnx, calibration.csv, validation.csv, labels.json, tokenizer.json. Its
INT8 model on ONNX Runtime is served by `python -m workbench.serve` and loaded by `workbench.load`; the prediction
rests on the batch curve and the host costs of this very machine, measured before. Every pass visits every setting, in
another order. A shared machine changes its speed, so a few calls of the model are timed right before and after each
load, and the prediction's times are scaled by them (column "speed"); so is timed how much two sessions of the model do
at once (between 1.5 and 2.1 times one, minute by minute, on two processors of a shared host). What others took is
shown. Poisson rates are shares of what the service can do at that speed, as predicted.
Every run is predicted with intervals for a measurement of its own requests (`for_a_measurement`), as a sweep reports
them; the last lines say how many settings they hold in both of their first quiet runs, and how wide they are, beside
the goals. On a quiet machine costs and curve take a minute and the 32 runs about eight; 12 minutes leave room to repeat
disturbed ones. Closed loops are loaded for 5 s and Poisson arrivals for 10: few requests make P99 uncertain, which the
intervals count, and on a machine that changes its speed every few seconds many passes tell more than long ones.
Medians over passes are compared. A run in which others took more than a quarter of a processor is disturbed: a setting
is judged by its quiet runs alone, and not at all where it has none. `--until-quiet` measures costs and curve again
until the machine was quiet meanwhile (for a third of its minutes at most), then passes over the settings that lack two
quiet runs until none does or the minutes are over. The file is written after every run; `--resume` goes on with it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.predicted_runs import (
    QUIET_RUNS,
    SETTINGS,
    Figures,
    Promised,
    Record,
    Run,
    Setting,
    read_record,
    table,
    without_quiet_runs,
    write_record,
)
from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import Tolerance
from workbench.bundle.write import BundleContents, write_bundle
from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.load import LoadPlan, bodies_of_dataset, run_load
from workbench.load.service_process import running_service
from workbench.prediction.curve import measure_curve
from workbench.prediction.host_costs.measure import measure_host_costs, processors
from workbench.prediction.simulation import Simulated, figures, for_a_measurement, simulate
from workbench.prediction.simulation.intervals import HOST_TIMES
from workbench.prediction.together import SideBySide, host_beside, side_by_side, slower_after_idle
from workbench.targets import open_target
from workbench.targets.base import Feeds, Session
from workbench.values.candidate import Candidate, Quantization
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate, Together
from workbench.values.model import Model
from workbench.values.preprocess import Preprocessor
from workbench.values.service import HostCosts, ServiceLoad

ROOT = Path(__file__).parents[1]
BINS, MAX_LENGTH = (16, 32, 64), 64
BATCHES = (1, 2, 4, 8, 16)
WARMUP_S = 1.5
YARDSTICK = (8, 32)
"""Batch and length."""
SIMULATED = 30_000


class Subject:
    """What is served: one INT8 artifact, and a bundle of it with bins and one without."""

    def __init__(self, folder: Path, work: Path, scheme: str) -> None:
        self.model = read_model(next(folder.glob("*.onnx")))
        self.dataset = _dataset(folder, work, self.model)
        self.candidate = Candidate(
            target="onnxruntime",
            quantization=Quantization(scheme="dynamic", weight_granularity="channel")
            if scheme == "dynamic"
            else Quantization(),
        )
        target = open_target("onnxruntime")
        for name in ("lowered", "compiled"):
            (work / name).mkdir()
        lowered = target.lower(self.model, self.candidate, None, work / "lowered")
        self.artifact = target.compile(lowered, self.candidate, work / "compiled")
        self.compiled = work / "compiled"
        self.session = self.open()
        text = self.dataset.preprocessor
        assert text is not None
        self.bundles = {
            bins: _bundle(
                work / f"bundle-{bins}", self, work / "compiled", replace(text, bins=BINS if bins else BINS[-1:])
            )
            for bins in (True, False)
        }
        lengths = self.dataset.lengths("validation")
        assert lengths is not None
        self.lengths = lengths
        self.bodies = bodies_of_dataset(self.dataset)

    def side_by_side(self) -> AbstractContextManager[SideBySide]:
        """Two sessions, where there are two processors for them."""
        return side_by_side(self.session, self.open, min(2, processors()), self.feeds_of(4, 32), threads=1)

    def open(self) -> Session:
        return open_target("onnxruntime").open(self.artifact, self.compiled, self.candidate)

    def feeds_of(self, batch: int, length: int) -> list[Feeds]:
        return self.dataset.sample_feeds("validation", 3, batch, seed=0, length=length)


def _dataset(folder: Path, work: Path, model: Model) -> Dataset:
    text = f"""version: 1
task: classification
files: {{calibration: {folder}/calibration.csv, validation: {folder}/validation.csv}}
columns: {{text: text, label: label}}
labels: {folder}/labels.json
tokenizer: {folder}/tokenizer.json
max_length: {MAX_LENGTH}
bins: {list(BINS)}
"""
    (work / "manifest.yaml").write_text(text, encoding="utf-8")
    return read_manifest(work / "manifest.yaml", model)


def _bundle(to: Path, subject: Subject, compiled: Path, text: Preprocessor) -> Path:
    batches = list(subject.dataset.batches("validation", 4, stop=16))
    texts = subject.dataset.texts("validation")
    assert texts is not None
    golden = tuple(
        GoldenBatch(feeds=b.feeds, outputs=subject.session.run(b.feeds), texts=tuple(texts[int(i)] for i in b.indices))
        for b in batches
    )
    return write_bundle(
        to,
        BundleContents(
            name="predicted-against-measured",
            task="classification",
            candidate=subject.candidate,
            artifact=subject.artifact,
            artifact_directory=compiled,
            evaluations=(),
            baseline=(),
            model=subject.model,
            datasets={},
            golden=golden,
            tolerance=Tolerance(absolute=1e-2, relative=1e-2),
            labels=subject.dataset.labels,
            preprocessor=text,
        ),
    )


class Yardstick:
    """Calls that the curve holds too: how fast the machine is now beside the time when the curve was taken."""

    def __init__(self, session: Session, feeds: list[Feeds], first_ms: float) -> None:
        self.session, self.feeds, self.first_ms = session, feeds, first_ms

    def now_ms(self, calls: int = 25) -> float:
        times = []
        for i in range(calls + 2):
            start = time.perf_counter_ns()
            self.session.run(self.feeds[i % len(self.feeds)])
            times.append((time.perf_counter_ns() - start) / 1e6)
        return median(times[2:])

    def speed(self) -> float:
        """How long they take now, over how long they took for the curve."""
        return self.now_ms() / self.first_ms


def scaled(curve: BatchCurve, factor: float) -> BatchCurve:
    def times(e: Estimate) -> Estimate:
        return replace(e, value=e.value * factor, low=e.low * factor, high=e.high * factor)

    def point(p: CurvePoint) -> CurvePoint:
        quantiles = tuple(q * factor for q in p.quantiles_ms)
        return replace(p, p50_ms=times(p.p50_ms), mean_ms=p.mean_ms * factor, quantiles_ms=quantiles)

    slower = tuple(replace(one, slower_ms=one.slower_ms * factor) for one in curve.after_idle)
    return replace(curve, points=tuple(point(p) for p in curve.points), after_idle=slower)


def scaled_costs(host: HostCosts, factor: float) -> HostCosts:
    times: dict[str, Any] = {name: getattr(host, name) * factor for name in HOST_TIMES}
    return replace(host, **times)


def now(curve: BatchCurve, speeds: tuple[float, ...], together: tuple[Together, ...]) -> BatchCurve:
    """The curve at the mean of these speeds, and with what sessions do at once now, where that could be told."""
    spread = math.hypot(curve.speed_spread, math.log(speeds[-1] / speeds[0]) / 2)
    found = replace(scaled(curve, sum(speeds) / len(speeds)), speed_spread=spread)
    return replace(found, together=together or curve.together)


def simulated(subject: Subject, curve: BatchCurve, host: HostCosts, setting: Setting, load: ServiceLoad) -> Simulated:
    bins = BINS if setting.bins else BINS[-1:]
    return simulate(curve, setting.settings, load, host, subject.lengths, bins, requests=SIMULATED, seed=1)


def promised(
    subject: Subject, curve: BatchCurve, host: HostCosts, setting: Setting, found: Simulated, requests: int
) -> Promised:
    """The intervals for a measurement of so many requests."""
    bins = BINS if setting.bins else BINS[-1:]
    wide = for_a_measurement(figures(found), curve, host, subject.lengths, bins, requests=requests, seed=1)
    return Promised(throughput=wide.throughput_per_s, p50=wide.p50_ms, p99=wide.p99_ms)


def figures_of(found: Simulated) -> Figures:
    p50, p99 = np.percentile(found.latency_ms, [50, 99])
    return Figures(
        throughput=found.throughput_per_s, p50=float(p50), p99=float(p99), mean_batch=float(found.batch_rows.mean())
    )


def load_of(subject: Subject, curve: BatchCurve, host: HostCosts, setting: Setting) -> ServiceLoad:
    if setting.clients:
        return ServiceLoad(arrivals="closed", concurrency=setting.clients)
    full = simulated(subject, curve, host, setting, ServiceLoad(arrivals="closed", concurrency=100))
    assert setting.share is not None
    return ServiceLoad(arrivals="poisson", rate_per_s=round(full.throughput_per_s * setting.share, 1))


def one_run(
    subject: Subject,
    setting: Setting,
    yardstick: Yardstick,
    curve: BatchCurve,
    host: HostCosts,
    seconds: float,
    seed: int,
    work: Path,
    patience_s: float,
) -> Run:
    log = work / "service.log"
    with (
        subject.side_by_side() as pair,
        running_service(
            subject.bundles[setting.bins], log=log, settings=setting.settings, more=("--policy", "warn")
        ) as service,
    ):
        wait_until_quiet(patience_s)
        pair.time_rounds()
        before, slowed = pair.found(), yardstick.speed()
        curve_now = now(curve, (slowed,), before)
        load = load_of(subject, curve_now, host_beside(scaled_costs(host, slowed), curve_now), setting)
        # arrivals of their own rhythm need longer for a P99: about a thousand of them
        seconds = seconds if setting.clients else 2 * seconds
        front, spent = psutil.Process(service.pid), _busy_s()
        ours = _tree_s(front)
        began = time.perf_counter()
        plan = LoadPlan(url=service.url, load=load, duration_s=seconds, warmup_s=WARMUP_S, seed=seed)
        result = run_load(plan, subject.bodies, server_pid=service.pid)
        wall = time.perf_counter() - began
        others = ((_busy_s() - spent) - (_tree_s(front) - ours)) / wall
        speeds = slowed, yardstick.speed()
        pair.time_rounds()
    if result.failed or result.p50_ms is None or result.p99_ms is None:
        raise SystemExit(f"{setting}: {result.failed} of {result.requests} failed: {result.statuses} {result.errors}")
    curve_now = now(curve, speeds, pair.found())
    host_now = host_beside(scaled_costs(host, sum(speeds) / 2), curve_now)
    found = simulated(subject, curve_now, host_now, setting, load)
    return Run(
        measured=Figures(
            throughput=result.throughput_per_s.value,
            p50=result.p50_ms.value,
            p99=result.p99_ms.value,
            mean_batch=result.server.mean_batch if result.server else None,
        ),
        predicted=figures_of(found),
        promised=promised(subject, curve_now, host_now, setting, found, result.answered),
        load=str(load),
        speed=sum(speeds) / 2,
        others=max(others, 0.0),
        requests=result.requests,
        client_share=result.client_share,
        together=host_now.capacity[-1],
        speeds=speeds,
        togethers=tuple(one.work.value for one in (*before, *pair.found())),
    )


def wait_until_quiet(patience_s: float) -> None:
    """Until everybody together uses less than a seventh of a processor for a second, or patience ends."""
    end_s = time.monotonic() + patience_s
    while patience_s:
        used = psutil.cpu_percent(interval=1.0) / 100 * (psutil.cpu_count() or 1)
        if used < 0.15 or time.monotonic() > end_s:
            return


def _busy_s() -> float:
    """Processor seconds of everybody but us and our ended children (the load generator is one)."""
    all_ = psutil.cpu_times()
    busy = sum(float(getattr(all_, part, 0.0)) for part in ("user", "nice", "system", "irq", "softirq", "steal"))
    return busy - sum(os.times()[:4])


def _tree_s(front: psutil.Process) -> float:
    times = [p.cpu_times() for p in (front, *front.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def measured_base(subject: Subject, patience_s: float) -> tuple[HostCosts, BatchCurve, float, bool]:
    """Host costs, curve, the yardstick's time in it, and whether the machine was quiet meanwhile."""
    wait_until_quiet(patience_s)
    host = measure_host_costs(subject.model, subject.dataset, subject.artifact.toolchain)
    quiet = not any(words in host.origin for words in ("while others", "cut to"))
    print(f"host costs ({'quiet' if quiet else 'NOISY'}): {host}", flush=True)
    wait_until_quiet(patience_s)
    with subject.side_by_side() as pair:
        pair.time_rounds()
        curve = measure_curve(subject.session, BATCHES, BINS, subject.feeds_of, threads=1, stepped=False, budget_s=10.0)
        pair.time_rounds()
    slower = slower_after_idle(subject.session, subject.feeds_of(1, BINS[1]))
    curve = replace(curve, together=pair.found(), after_idle=slower)
    yardstick_ms = next(p.p50_ms.value for p in curve.points if (p.batch, p.length) == YARDSTICK)
    print(f"curve: {curve.verdict}; speed changes by {curve.speed_spread:.1%} from moment to moment", flush=True)
    print(f"two sessions at once: {curve.together or 'not told'}; after idle waits: {curve.after_idle}", flush=True)
    for point in curve.points:
        p50 = point.p50_ms
        print(f"  {point.length:4} x {point.batch:3}: {p50.value:7.2f} ms [{p50.low:.2f}, {p50.high:.2f}]", flush=True)
    return host, curve, yardstick_ms, quiet and curve.quiet


def begun(subject: Subject, scheme: str, patience_s: float, until_s: float) -> Record:
    """A record without runs. Costs and curve are measured again while the machine is busy, until that moment."""
    while True:
        host, curve, yardstick_ms, quiet = measured_base(subject, patience_s)
        if quiet or time.monotonic() > until_s:
            break
    return Record(
        machine=subject.artifact.toolchain,
        scheme=scheme,
        host=host,
        curve=curve,
        quiet=quiet,
        yardstick_ms=yardstick_ms,
        passes=0,
        runs={},
    )


def shown(record: Record, chosen: list[Setting]) -> list[Setting]:
    """Those of this slice, and those of slices before."""
    return [setting for setting in SETTINGS if setting in chosen or record.of(setting)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--passes", type=int, default=3, help="over all settings; not with --until-quiet")
    parser.add_argument(
        "--until-quiet",
        type=float,
        metavar="MINUTES",
        help=f"pass again over settings with fewer than {QUIET_RUNS} quiet runs, at most so long",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the runs of --to, and what they rest on")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--scheme", choices=("dynamic", "none"), default="dynamic")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds to wait for a quiet machine before each run"
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of settings, from 0")
    parser.add_argument("--to", type=Path, default=Path(".workbench/predicted_against_measured.json"))
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"{arguments.folder} is not there; name a folder with a model and its data.")
    chosen = [SETTINGS[i] for i in arguments.only] if arguments.only else list(SETTINGS)
    began_s, limit_s = time.monotonic(), 60 * (arguments.until_quiet or 0.0)
    with tempfile.TemporaryDirectory(prefix="workbench-predicted-") as name:
        work = Path(name)
        subject = Subject(arguments.folder, work, arguments.scheme)
        record = read_record(arguments.to, subject.artifact.toolchain, arguments.scheme) if arguments.resume else None
        if record is None:
            record = begun(subject, arguments.scheme, arguments.patience, began_s + limit_s / 3)
            write_record(arguments.to, record, chosen)
        yardstick = Yardstick(subject.session, subject.feeds_of(*YARDSTICK), record.yardstick_ms)
        for _ in range(arguments.passes) if arguments.until_quiet is None else itertools.count():
            order = chosen if arguments.until_quiet is None else without_quiet_runs(record, chosen)
            if not order:
                break
            number = record.passes
            record = replace(record, passes=number + 1)
            for setting in random.Random(number).sample(order, len(order)):
                if arguments.until_quiet is not None and time.monotonic() - began_s > limit_s:
                    break
                run = one_run(
                    subject,
                    setting,
                    yardstick,
                    record.curve,
                    record.host,
                    arguments.seconds,
                    number,
                    work,
                    arguments.patience,
                )
                record = replace(record, runs={**record.runs, str(setting): (*record.of(setting), run)})
                write_record(arguments.to, record, shown(record, chosen))
                print(
                    f"pass {number}: {setting}: {run.predicted.throughput:.0f} / {run.measured.throughput:.0f} per s, "
                    f"P99 {run.predicted.p99:.1f} / {run.measured.p99:.1f} ms, speed {run.speed:.2f}, "
                    f"others {run.others:.2f}, two sessions together {run.together:.2f}",
                    flush=True,
                )
            else:
                continue
            break  # the time is over
        subject.session.close()
    lines, _ = table(record, shown(record, chosen))
    print("\n".join(lines))
    print(f"written: {arguments.to}")


if __name__ == "__main__":
    main()
