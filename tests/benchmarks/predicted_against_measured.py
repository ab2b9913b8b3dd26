"""The serving model against the real service: P50, P99 and throughput of many settings, predicted and measured.

    python -m tests.benchmarks.predicted_against_measured [FOLDER] [--passes 3] [--seconds 6] [--to FILE.json]

FOLDER is laid out as bench/banking77: one .onnx, calibration.csv, validation.csv, labels.json, tokenizer.json. Its
INT8 model on ONNX Runtime is served by `python -m workbench.serve` and loaded by `workbench.load`; the prediction
rests on the batch curve and the host costs of this very machine, minutes before. Every pass visits every setting, in
another order. A shared machine changes its speed, so a few calls of the model are timed right before and after each
load, and the prediction's times are scaled by them (column "speed"); what other processes took meanwhile is shown.
Poisson rates are shares of what the service can do at that speed, as predicted.
Medians over passes are compared; passes in which others took more than a quarter of a processor count only where a
setting has no other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from workbench.batch_curve import measure_curve
from workbench.bundle import BundleContents, GoldenBatch, Tolerance, write_bundle
from workbench.candidate import Candidate, Quantization
from workbench.canonical import encode
from workbench.dataset import Dataset, read_manifest
from workbench.graph import read_model
from workbench.host_costs import measure_host_costs
from workbench.host_costs.capacity import measure_capacity
from workbench.load import LoadPlan, bodies_of_dataset, run_load
from workbench.load.service_process import running_service
from workbench.model import Model
from workbench.preprocess import Preprocessor
from workbench.results import BatchCurve, CurvePoint, Estimate
from workbench.service import HostCosts, ServiceLoad, ServiceSettings
from workbench.serving_model import simulate
from workbench.targets import open_target
from workbench.targets.base import Feeds, Session

ROOT = Path(__file__).parents[2]
BINS, MAX_LENGTH = (16, 32, 64), 64
BATCHES = (1, 2, 4, 8, 16)
LIMITS = {"throughput": 0.10, "p50": 0.15, "p99": 0.25}
DISTURBED = 0.25
WARMUP_S = 1.5
SIMULATED = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `share` of the service's capacity where arrivals are Poisson."""

    batch: int
    timeout_ms: float
    workers: int
    clients: int | None = None
    share: float | None = None
    bins: bool = True

    @property
    def settings(self) -> ServiceSettings:
        return ServiceSettings(max_batch_size=self.batch, batch_timeout_ms=self.timeout_ms, workers=self.workers)

    def __str__(self) -> str:
        load = f"{self.clients} clients" if self.clients else f"Poisson {self.share:.0%}"
        return f"{self.settings}, {'bins' if self.bins else 'one length'}, {load}"


SETTINGS = (
    Setting(batch=1, timeout_ms=0, workers=1, clients=1),
    Setting(batch=1, timeout_ms=0, workers=1, clients=16),
    Setting(batch=1, timeout_ms=0, workers=2, clients=16),
    Setting(batch=4, timeout_ms=0, workers=1, clients=16),
    Setting(batch=4, timeout_ms=5, workers=1, clients=16),
    Setting(batch=4, timeout_ms=0, workers=2, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=1),
    Setting(batch=16, timeout_ms=0, workers=1, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=100),
    Setting(batch=16, timeout_ms=20, workers=1, clients=100),
    Setting(batch=16, timeout_ms=5, workers=2, clients=100),
    Setting(batch=16, timeout_ms=5, workers=1, clients=100, bins=False),
    Setting(batch=1, timeout_ms=0, workers=1, share=0.5, bins=False),
    Setting(batch=16, timeout_ms=5, workers=1, share=0.5),
    Setting(batch=16, timeout_ms=5, workers=1, share=0.8),
    Setting(batch=4, timeout_ms=0, workers=2, share=0.8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    throughput: float
    p50: float
    p99: float
    mean_batch: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load. `speed`: how long the same calls took, over how long they took for the curve; `others`: processors
    that foreign processes kept busy."""

    measured: Figures
    predicted: Figures
    load: str
    speed: float
    others: float
    requests: int
    client_share: float


class Subject:
    """What is served: one INT8 artifact, and a bundle of it with bins and one without."""

    def __init__(self, folder: Path, work: Path, scheme: str) -> None:
        self.model = read_model(next(folder.glob("*.onnx")))
        self.dataset = _dataset(folder, work, self.model)
        self.candidate = Candidate(
            quantization=Quantization(scheme=scheme, weight_granularity="channel")
            if scheme != "none"
            else Quantization()  # type: ignore[arg-type]  # argparse checked it
        )
        target = open_target("onnxruntime")
        for name in ("lowered", "compiled"):
            (work / name).mkdir()
        lowered = target.lower(self.model, self.candidate, None, work / "lowered")
        self.artifact = target.compile(lowered, self.candidate, work / "compiled")
        self.session = target.open(self.artifact, work / "compiled", self.candidate)
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
    """The same few calls again and again: how fast the machine is now."""

    def __init__(self, session: Session, feeds: list[Feeds]) -> None:
        self.session, self.feeds = session, feeds
        self.first_ms = self.now_ms(20)

    def now_ms(self, calls: int = 10) -> float:
        times = []
        for i in range(calls + 2):
            start = time.perf_counter_ns()
            self.session.run(self.feeds[i % len(self.feeds)])
            times.append((time.perf_counter_ns() - start) / 1e6)
        return median(times[2:])


def scaled(curve: BatchCurve, factor: float) -> BatchCurve:
    def times(e: Estimate) -> Estimate:
        return replace(e, value=e.value * factor, low=e.low * factor, high=e.high * factor)

    def point(p: CurvePoint) -> CurvePoint:
        quantiles = tuple(q * factor for q in p.quantiles_ms)
        return replace(p, p50_ms=times(p.p50_ms), mean_ms=p.mean_ms * factor, quantiles_ms=quantiles)

    return replace(curve, points=tuple(point(p) for p in curve.points))


def scaled_costs(host: HostCosts, factor: float, capacity: tuple[float, ...]) -> HostCosts:
    names = ("request_ms", "batch_ms", "worker_batch_ms", "worker_row_ms", "client_ms", "transport_ms")
    return replace(host, capacity=capacity, **{name: getattr(host, name) * factor for name in names})


def predict(subject: Subject, curve: BatchCurve, host: HostCosts, setting: Setting, load: ServiceLoad) -> Figures:
    found = simulate(
        curve,
        setting.settings,
        load,
        host,
        subject.lengths,
        BINS if setting.bins else BINS[-1:],
        requests=SIMULATED,
        seed=1,
    )
    p50, p99 = np.percentile(found.latency_ms, [50, 99])
    return Figures(
        throughput=found.throughput_per_s, p50=float(p50), p99=float(p99), mean_batch=float(found.batch_rows.mean())
    )


def load_of(subject: Subject, curve: BatchCurve, host: HostCosts, setting: Setting) -> ServiceLoad:
    if setting.clients:
        return ServiceLoad(arrivals="closed", concurrency=setting.clients)
    full = predict(subject, curve, host, setting, ServiceLoad(arrivals="closed", concurrency=100))
    assert setting.share is not None
    return ServiceLoad(arrivals="poisson", rate_per_s=round(full.throughput * setting.share, 1))


def one_run(
    subject: Subject,
    setting: Setting,
    yardstick: Yardstick,
    curve: BatchCurve,
    host: HostCosts,
    capacity: tuple[float, ...],
    seconds: float,
    seed: int,
    work: Path,
    patience_s: float,
) -> Run:
    log = work / "service.log"
    with running_service(
        subject.bundles[setting.bins], log=log, settings=setting.settings, more=("--policy", "warn")
    ) as service:
        wait_until_quiet(patience_s)
        before_ms = yardstick.now_ms()
        slowed = before_ms / yardstick.first_ms
        load = load_of(subject, scaled(curve, slowed), scaled_costs(host, slowed, capacity), setting)
        # arrivals of their own rhythm need longer for a P99: about a thousand of them
        seconds = seconds if setting.clients else 2 * seconds
        front, spent = psutil.Process(service.pid), _busy_s()
        ours = _tree_s(front)
        began = time.perf_counter()
        plan = LoadPlan(url=service.url, load=load, duration_s=seconds, warmup_s=WARMUP_S, seed=seed)
        result = run_load(plan, subject.bodies, server_pid=service.pid)
        wall = time.perf_counter() - began
        others = ((_busy_s() - spent) - (_tree_s(front) - ours)) / wall
        after_ms = yardstick.now_ms()
    if result.failed or result.p50_ms is None or result.p99_ms is None:
        raise SystemExit(f"{setting}: {result.failed} of {result.requests} failed: {result.statuses} {result.errors}")
    speed = (before_ms + after_ms) / 2 / yardstick.first_ms
    predicted = predict(subject, scaled(curve, speed), scaled_costs(host, speed, capacity), setting, load)
    return Run(
        measured=Figures(
            throughput=result.throughput_per_s.value,
            p50=result.p50_ms.value,
            p99=result.p99_ms.value,
            mean_batch=result.server.mean_batch if result.server else None,
        ),
        predicted=predicted,
        load=str(load),
        speed=speed,
        others=max(others, 0.0),
        requests=result.requests,
        client_share=result.client_share,
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


def table(found: dict[Setting, list[Run]]) -> tuple[list[str], list[dict[str, Any]]]:
    head = f"{'setting':62} {'requests/s':>19} {'P50 ms':>21} {'P99 ms':>21} {'batch':>11} {'speed':>5} {'others':>6}"
    lines, rows, within = [head], [], dict.fromkeys(LIMITS, 0)
    for setting, runs in found.items():
        quiet = [run for run in runs if run.others < DISTURBED]
        used = quiet or runs
        row: dict[str, Any] = {"setting": str(setting), "passes": len(runs), "quiet_passes": len(quiet)}
        cells = []
        for name, limit in LIMITS.items():
            predicted = median(getattr(run.predicted, name) for run in used)
            measured = median(getattr(run.measured, name) for run in used)
            error = predicted / measured - 1
            good = abs(error) <= limit
            within[name] += good
            row[name] = {"predicted": predicted, "measured": measured, "error": error, "within": good}
            cells.append(f"{predicted:7.1f} {measured:7.1f} {error:+5.0%}{' ' if good else '!'}")
        batches = [run.measured.mean_batch for run in used if run.measured.mean_batch is not None]
        row["mean_batch"] = {
            "predicted": median(run.predicted.mean_batch or 0.0 for run in used),
            "measured": median(batches) if batches else None,
        }
        row["speed"], row["others"] = median(run.speed for run in used), median(run.others for run in used)
        batch = f"{row['mean_batch']['predicted']:5.1f} {row['mean_batch']['measured'] or 0:5.1f}"
        mark = "" if quiet else " disturbed"
        lines.append(f"{setting!s:62} {' '.join(cells)} {batch} {row['speed']:5.2f} {row['others']:6.2f}{mark}")
        rows.append(row)
    for name, limit in LIMITS.items():
        lines.append(f"{name}: {within[name]} of {len(found)} within {limit:.0%}")
    lines.append("each: predicted, measured, error of the prediction; ! beyond its limit")
    return lines, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
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
    with tempfile.TemporaryDirectory(prefix="workbench-predicted-") as name:
        work = Path(name)
        subject = Subject(arguments.folder, work, arguments.scheme)
        wait_until_quiet(arguments.patience)
        host, quiet = measure_host_costs(subject.model, subject.dataset, subject.artifact.toolchain)
        print(f"host costs ({'quiet' if quiet else 'NOISY'}): {host}", flush=True)
        wait_until_quiet(arguments.patience)
        curve = measure_curve(subject.session, BATCHES, BINS, subject.feeds_of, threads=1, stepped=False, budget_s=10.0)
        print(f"curve: {curve.verdict}", flush=True)
        for point in curve.points:
            p50 = point.p50_ms
            print(
                f"  {point.length:4} x {point.batch:3}: {p50.value:7.2f} ms [{p50.low:.2f}, {p50.high:.2f}]", flush=True
            )
        yardstick = Yardstick(subject.session, subject.feeds_of(8, 32))
        found: dict[Setting, list[Run]] = {setting: [] for setting in chosen}
        for number in range(arguments.passes):
            wait_until_quiet(arguments.patience)
            capacity = measure_capacity()
            order = list(chosen)
            random.Random(number).shuffle(order)
            for setting in order:
                run = one_run(
                    subject,
                    setting,
                    yardstick,
                    curve,
                    host,
                    capacity,
                    arguments.seconds,
                    number,
                    work,
                    arguments.patience,
                )
                found[setting].append(run)
                print(
                    f"pass {number}: {setting}: {run.predicted.throughput:.0f} / {run.measured.throughput:.0f} per s, "
                    f"P99 {run.predicted.p99:.1f} / {run.measured.p99:.1f} ms, speed {run.speed:.2f}, "
                    f"others {run.others:.2f}, capacity {capacity[-1]:.2f}",
                    flush=True,
                )
        subject.session.close()
    lines, rows = table(found)
    print("\n".join(lines))
    body = {
        "machine": encode(subject.artifact.toolchain),
        "host": encode(host),
        "curve": encode(curve),
        "rows": rows,
        "runs": {str(setting): encode(runs) for setting, runs in found.items()},
    }
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    temporary = arguments.to.with_suffix(".tmp")
    temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    temporary.replace(arguments.to)
    print(f"written: {arguments.to}")


if __name__ == "__main__":
    main()
