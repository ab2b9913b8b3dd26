"""What joint search is worth on the road: throughput at concurrency 100 and P99 of the recommended bundle against three
other ways to serve the same model, in one run, in interleaved rounds.

    python -m benchmarks.serving_table                        # about 20 minutes on 2 cores, most of it the sweep
    python -m benchmarks.serving_table --engine openvino --rounds 8 --seconds 15 --json table.json
    python -m benchmarks.serving_table --workspace DIR        # goes on with the sweep that DIR holds
    python -m benchmarks.serving_table --quick --rounds 2     # 4 candidates instead of 12: does it all work?

    plain        float, every text padded to 64, LitServe with its defaults (benchmarks/plain_litserve.py)
    float        the best float candidate of the sweep, with its bins and tuned service settings
    int8, 64     the best INT8 candidate of one length, with tuned service settings
    recommended  what the sweep recommends

The last line is the service's overhead: the recommended bundle's throughput over that of its session called back to
back with the same batches. The load generator runs on the same processors, as do the server's own processes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from benchmarks.direct_calls import rows_per_s
from benchmarks.served import served
from workbench.api.opening import journal_of, open_store, summary_of
from workbench.bundle import write_bundle
from workbench.evaluation.bench import open_bench
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.load.plan import LoadPlan
from workbench.load.requests import bodies_of_dataset
from workbench.load.result import LoadResult
from workbench.load.run import run_load
from workbench.load.server import Samples, scrape
from workbench.shipping.handover import bundle_contents
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import encode
from workbench.values.measurement import Estimate, ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import ServiceLoad, ServiceSettings

ROOT = Path(__file__).resolve().parents[1]
LENGTH, WARMUP_S = 64, 2.0

MANIFEST = """version: 1
task: classification
files: {{calibration: {bench}/calibration.csv, validation: {bench}/validation.csv}}
columns: {{text: text, label: label}}
labels: {bench}/labels.json
tokenizer: {bench}/tokenizer.json
max_length: 64
bins: [64]
"""
SPACE = """version: 1
target: {engine}
parameters:
  quantization.scheme: {{choices: [none, static]}}
  quantization.algorithm: {{choices: [mse], when: {{quantization.scheme: [static]}}}}
  quantization.activation_symmetric: {{choices: [false], when: {{quantization.scheme: [static]}}}}
  quantization.weight_granularity: {{choices: [channel], when: {{quantization.scheme: [static]}}}}
  quantization.attention_matmul: {{choices: [{attention}], when: {{quantization.scheme: [static]}}}}
  quantization.keep_float: {{choices: [0], when: {{quantization.scheme: [static]}}}}
  serving.intra_op_threads: {{choices: [{threads}]}}
  serving.sequence_bins: {{choices: [{bins}]}}
service:
  max_batch_size: [1, 4, 8, 16, 32]
  batch_timeout_ms: [0, 2, 5, 10]
  workers: [1, 2]
"""
EXPERIMENT = """version: 1
name: serving-table
about: MiniLM-L6 on Banking77 under {concurrency} clients
model: {bench}/minilm_l6_banking77.onnx
dataset: ../calibration/banking77.yaml
search_space: ../search_spaces/serving-table.yaml
calibration: {{samples: 128, batch: 8}}
objectives: [service_throughput_per_s, accuracy]
constraints: {{accuracy_drop_pp: 1.0}}
service: {{concurrency: {concurrency}, confirm: 5s}}
budget: {{trials: 12, timeout: 40m}}
measure: {{calls: {calls}, short_calls: 50, feeds: 64}}
"""
FULL = {"threads": "2, 1", "bins": '"64", "optimal 4", "optimal 8"', "calls": 300}
QUICK = {"threads": "2", "bins": '"64", "optimal 4"', "calls": 60}


@dataclass(kw_only=True)
class Way:
    """One way to serve, and what its rounds gave."""

    name: str
    command: list[object]
    what: str
    accuracy: float | None
    predicted: ServiceResult | None = None
    bundle: Path | None = None
    workers: int = 1
    results: list[LoadResult] = field(default_factory=list)
    direct_per_s: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--engine", choices=["onnxruntime", "openvino"], default="onnxruntime")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load in each round of each way")
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="a small space, timed shortly; for no figure to quote")
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--json", type=Path, help="write every figure here as well")
    options = parser.parse_args()
    if not (options.bench / "minilm_l6_banking77.onnx").exists():
        raise SystemExit(f"{options.bench} does not hold the benchmark; name its folder with --bench")
    workspace = options.workspace or Path(tempfile.mkdtemp(prefix="workbench-serving-table-"))
    experiment = _swept(workspace, options)
    question = read_experiment(experiment, workspace)
    ways = _ways(question, workspace, options.bench)
    bodies = bodies_of_dataset(question.dataset)
    print(f"load average {os.getloadavg()[0]:.2f} before the rounds, {os.cpu_count()} processors", flush=True)
    for number in range(options.rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            _round(way, bodies, options.seconds, options.concurrency, number, workspace)
    text = _table(ways, options)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(_as_json(ways, options), indent=1), encoding="utf-8")


def _swept(workspace: Path, options: argparse.Namespace) -> Path:
    texts = {"calibration/banking77.yaml": MANIFEST, "search_spaces/serving-table.yaml": SPACE}
    texts["experiments/serving-table.yaml"] = EXPERIMENT
    values = {
        "bench": options.bench,
        "engine": options.engine,
        "attention": "true" if options.engine == "openvino" else "false",
        "concurrency": options.concurrency,
        **(QUICK if options.quick else FULL),
    }
    for name, text in texts.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text.format(**values), encoding="utf-8")
    experiment = workspace / "experiments/serving-table.yaml"
    subprocess.run([sys.executable, "-m", "workbench", "sweep", str(experiment)], check=True)
    return experiment


def _ways(question: Experiment, workspace: Path, bench: Path) -> list[Way]:
    journal = journal_of(question)
    complete = [e for e in journal.evaluations().values() if e.status == "complete"]
    recommended = summary_of(question, journal).recommended
    if recommended is None:
        raise SystemExit("the sweep recommends nothing: no candidate keeps the constraint")
    floats = [e for e in complete if e.candidate.quantization.scheme == "none"]
    quantized = [e for e in complete if e.candidate.quantization.scheme != "none"]
    chosen = {
        "float": max(floats, key=_throughput),
        "int8, 64": max(quantized, key=lambda e: _at_one_length(e).throughput_per_s.value),
        "recommended": next(e for e in complete if e.candidate.id == recommended.candidate_id),
    }
    plain: list[object] = ["benchmarks.plain_litserve", "--length", LENGTH, "--model", question.model.path]
    plain += ["--tokenizer", bench / "tokenizer.json", "--labels", bench / "labels.json"]
    baseline = next((e for e in floats if e.candidate.id == question.baseline.id), None)
    made = [
        Way(name="plain", command=plain, what="float, length 64, LitServe's defaults", accuracy=_accuracy(baseline))
    ]
    for name, evaluation in chosen.items():
        service = evaluation.measurement.service
        assert service is not None
        if name == "int8, 64":
            service = replace(service, best=_at_one_length(evaluation))
        settings = (service.best or service.closest).settings
        to = workspace / "bundles" / f"{evaluation.candidate.id}-{len(settings.sequence_bins)}"
        bundle = _bundle(to, question, evaluation.candidate, journal, settings)
        threads = evaluation.candidate.serving.intra_op_threads
        made.append(
            Way(
                name=name,
                command=["workbench.serve", bundle],
                what=f"{settings}; {threads} thread{'s' if threads > 1 else ''}",
                accuracy=_accuracy(evaluation),
                predicted=service,
                bundle=bundle,
                workers=settings.workers,
            )
        )
    return made


def _at_one_length(evaluation: Evaluation) -> ServiceFigures:
    """Predicted at the best settings but for the bins, which are the untuned ones: every text padded alike."""
    service = evaluation.measurement.service
    assert service is not None
    return service.at_untuned_bins or service.untuned


def _throughput(evaluation: Evaluation) -> float:
    service = evaluation.measurement.service
    return 0.0 if service is None or service.best is None else service.best.throughput_per_s.value


def _accuracy(evaluation: Evaluation | None) -> float | None:
    if evaluation is None or evaluation.measurement.accuracy is None:
        return None
    return evaluation.measurement.accuracy.values[evaluation.measurement.accuracy.primary]


def _bundle(to: Path, question: Experiment, candidate: Candidate, journal: Journal, settings: ServiceSettings) -> Path:
    if not to.exists():
        with open_store(question.workspace) as store:
            bench = open_bench(question, journal, store, lambda candidate, stage: None)
            contents = bundle_contents(question, candidate, bench, journal)
            assert contents.preprocessor is not None  # Banking77 is text
            padded = replace(contents.preprocessor, bins=settings.sequence_bins)
            write_bundle(to, replace(contents, service=settings, preprocessor=padded))
    return to


def _round(way: Way, bodies: list[str], seconds: float, concurrency: int, number: int, workspace: Path) -> None:
    log = workspace / f"{way.name.replace(', ', '-')}.log"
    with served(way.command, log) as (url, pid):
        plan = LoadPlan(
            url=url,
            load=ServiceLoad(concurrency=concurrency),
            duration_s=seconds,
            warmup_s=WARMUP_S,
            seed=number,
        )
        before = scrape(*plan.address)
        result = run_load(plan, bodies, server_pid=pid)
        after = scrape(*plan.address)
    if not result.answered:
        raise SystemExit(f"{way.name} answered nothing: {dict(result.statuses)}, {dict(result.errors)}; see {log}")
    way.results.append(result)
    line = f"round {number + 1} {way.name:<12} {result.throughput_per_s.value:7.1f}/s"
    if way.name == "recommended" and way.bundle is not None and before is not None and after is not None:
        batches = _batches(before, after)
        way.direct_per_s.append(rows_per_s(way.bundle, batches, workers=way.workers, seconds=seconds))
        line += f", its session alone {way.direct_per_s[-1]:7.1f}/s"
    print(f"{line}  {'; '.join(result.notes)}", flush=True)


def _batches(before: Samples, after: Samples) -> dict[int, dict[int, float]]:
    """Length → rows → batches of them that ran between two scrapes: of each length the mean, between its neighbours."""
    found: dict[int, dict[int, float]] = {}
    for labels, total in after["workbench_bin_batches_total"].items():
        count = total - before["workbench_bin_batches_total"].get(labels, 0.0)
        rows = after["workbench_bin_rows_total"][labels] - before["workbench_bin_rows_total"].get(labels, 0.0)
        if count <= 0:
            continue
        mean = rows / count
        low = math.floor(mean)
        length = int(labels.partition('"')[2].rstrip('"'))
        found[length] = {low: count * (low + 1 - mean)}
        if mean > low:
            found[length][low + 1] = count * (mean - low)
    return found


def _mean(values: list[float]) -> Estimate:
    """Geometric, with the 95 % interval of Student's t over rounds: what disturbs a round multiplies its figures."""
    logs = [math.log(value) for value in values]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return Estimate(value=math.exp(mean), low=math.exp(mean), high=math.exp(mean))
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def _ratio(above: list[float], below: list[float]) -> Estimate:
    """Of two ways, paired by round, so that the machine's drift cancels."""
    return _mean([a / b for a, b in zip(above, below, strict=True)])


def _throughputs(way: Way) -> list[float]:
    return [r.throughput_per_s.value for r in way.results]


def _p99s(way: Way) -> list[float]:
    return [r.p99_ms.value for r in way.results if r.p99_ms is not None]


def _table(ways: list[Way], options: argparse.Namespace) -> str:
    best = next(way for way in ways if way.name == "recommended")
    heads = ("", "accuracy", "throughput/s", "predicted", "P50 ms", "P99 ms", "predicted", "recommended is", "batch")
    rows = [heads]
    for way in ways:
        rate, p99 = _mean(_throughputs(way)), _mean(_p99s(way))
        p50 = _mean([r.p50_ms.value for r in way.results if r.p50_ms is not None])
        shown = way.predicted and (way.predicted.best or way.predicted.closest)
        ratio = _ratio(_throughputs(best), _throughputs(way))
        batches = [r.server.mean_batch for r in way.results if r.server is not None and r.server.mean_batch]
        rows.append(
            (
                way.name,
                "" if way.accuracy is None else f"{way.accuracy:.4f}",
                f"{rate.value:.1f} [{rate.low:.1f}, {rate.high:.1f}]",
                f"{shown.throughput_per_s.value:.1f}" if shown else "",
                f"{p50.value:.0f}",
                f"{p99.value:.0f} [{p99.low:.0f}, {p99.high:.0f}]",
                f"{shown.p99_ms.value:.0f}" if shown else "",
                "" if way is best else f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]",
                f"{statistics.fmean(batches):.1f}" if batches else "1",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", *(f"{way.name}: {way.what}" for way in ways)]
    failed = sum(r.failed for way in ways for r in way.results)
    lines.append(
        f"{options.engine}, {options.concurrency} clients in a closed loop, {len(best.results)} interleaved rounds of "
        f"{options.seconds:g} s each; geometric means with 95 % intervals over rounds, ratios paired by round; "
        f"{failed} requests failed; load average now {os.getloadavg()[0]:.2f}"
    )
    doubts = sorted({note for way in ways for r in way.results if not r.reliable for note in r.notes})
    lines += [f"NOT RELIABLE: {note}" for note in doubts]
    if best.direct_per_s:
        share = _ratio(_throughputs(best), best.direct_per_s)
        client = statistics.fmean(r.client_share for r in best.results)
        busy = statistics.fmean(r.server.worker_busy or 0.0 for r in best.results if r.server is not None)
        lines.append(
            f"service overhead: {share.value:.1%} [{share.low:.1%}, {share.high:.1%}] of its session called back to "
            f"back with the same batches ({_mean(best.direct_per_s).value:.1f}/s); the load generator took "
            f"{client:.0%} of a core of the same machine meanwhile; workers were in the model {busy:.0%} of the time"
        )
    return "\n".join(lines)


def _as_json(ways: list[Way], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "version": 1,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "options": {name: str(value) for name, value in vars(options).items()},
        "load_average": os.getloadavg(),
        "ways": [
            {
                "name": way.name,
                "what": way.what,
                "accuracy": way.accuracy,
                "predicted": encode(way.predicted.best or way.predicted.closest) if way.predicted else None,
                "rounds": [r.to_json() for r in way.results],
                "direct_per_s": way.direct_per_s,
            }
            for way in ways
        ],
    }


if __name__ == "__main__":
    main()
