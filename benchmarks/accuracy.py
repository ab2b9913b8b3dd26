"""Accuracy of every recipe, and of other people's INT8, on one model. Run by hand.

    python -m benchmarks.accuracy [FOLDER] [--slow] [--nncf-python PYTHON] [--inc-python PYTHON] [--only TEXT ...]

FOLDER is laid out as bench/banking77: one .onnx, calibration.csv, validation.csv, labels.json, tokenizer.json. Two
blocks: the Linear layers alone, then the products of two activations too. Every recipe is derived, lowered and compiled
for ONNX Runtime as the product does it, and runs the whole validation split, every sentence padded to its own bin.

    drop, p     accuracy lost against float in percentage points, 95 % interval, McNemar's exact test (paired)
    cosine      mean over the sentences, of their logits with float's
    |d|         the largest change of any logit
    s           seconds to a record or to a quantized model, beyond the observing pass that all recipes share
    passes      over the calibration sentences, the shared one included; a balanced model is observed for the first
                recipe with its factors and serves all later ones
    INT8        layers that run in an integer kernel, of those that multiply at all

How to read it: with 2080 sentences, differences of a few answers are noise; the cosine tells recipes apart long before
the accuracy does. What looks wrong and is not:

    kl, percentile      clip the few large values in LayerNorm's and Gelu's outputs (28 to 8, 24 to 3), whose loss costs
                        more than coarser steps everywhere. ONNX Runtime's Entropy has as many bins as levels by
                        default, and so gives what its MinMax gives
    balance 0.5         a factor of the square root leaves the input of the second feed-forward layers with larger
                        outliers than it had, since small weights meet large activations there; `auto` sees it coming
    weights mse         changes little with one scale per channel: the activations' rounding is most of the error
    quantize_static     puts Q/DQ on the outputs of products too, so that everything is rounded twice
    AMCT exact          one scale for each weight, and 32 sentences, as its configuration says
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import peers
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.bench import StageClock as Clock
from workbench.evaluation.build import artifact_of
from workbench.evaluation.record import record_of
from workbench.evaluation.statistics import statistics_of
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Batch
from workbench.inputs.dataset.splits import Dataset
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.observe import Feeds
from workbench.values.candidate import Candidate, Quantization, Serving
from workbench.values.errors import WorkbenchError
from workbench.values.significance import compare

ROOT = Path(__file__).resolve().parents[1]
CFG = ROOT / "calibration" / "amct-bert-classification.cfg"
SAMPLES, BATCH, THREADS = 512, 8, 2
CALIBRATIONS = f"calibration: {{samples: {SAMPLES}, batch: {BATCH}}}"

MANIFEST = """version: 1
task: classification
files:
  calibration: {bench}/calibration.csv
  validation: {bench}/validation.csv
  holdout: {bench}/validation.csv  # named so that no half of it is held out; nothing reads it
columns: {{text: text, label: label}}
labels: {bench}/labels.json
tokenizer: {bench}/tokenizer.json
max_length: 64
bins: [8, 16, 24, 32, 48, 64]
"""
EXPERIMENT = """version: 1
name: accuracy
about: accuracy of every recipe
model: {model}
dataset: ../calibration/data.yaml
search_space: {root}/search_spaces/onnxruntime.yaml
{calibration}
objectives: [accuracy]
budget: {{trials: 1, timeout: 1m}}
"""

PLAIN = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=False,
    keep_float=0,
)


def recipes(cfg: str) -> dict[str, Quantization]:
    """Name → settings, of the Linear layers alone."""

    def of(algorithm: str = "minmax", **changes: Any) -> Quantization:
        return replace(PLAIN, algorithm=algorithm, **changes)

    return {
        "minmax": PLAIN,
        "minmax, symmetric": of(activation_symmetric=True),
        "minmax, weights per tensor": of(weight_granularity="tensor"),
        "moving average": of("moving_average"),
        "percentile 99.999": of("percentile", percentile=99.999),
        "percentile 99.99": of("percentile", percentile=99.99),
        "percentile 99.9": of("percentile", percentile=99.9),
        "kl": of("kl"),
        "mse": of("mse"),
        "ifmr": of("ifmr"),
        "hfmg": of("hfmg"),
        "minmax, weights mse": of(weight_algorithm="mse"),
        "minmax, weights arq per tensor": of(weight_algorithm="arq", weight_granularity="tensor"),
        "minmax, adaround": of(weight_algorithm="adaround"),
        "minmax, balance 0.5": of(balance=0.5),
        "minmax, balance 0.75": of(balance=0.75),
        "minmax, balance auto": of(balance="auto"),
        "minmax, bias corrected": of(bias_correction=True),
        "mse, balance auto": of("mse", balance="auto"),
        "mse, weights mse": of("mse", weight_algorithm="mse"),
        "mse, weights mse, balance auto": of("mse", weight_algorithm="mse", balance="auto"),
        "mse, weights mse, balance auto, bias corrected": of(
            "mse", weight_algorithm="mse", balance="auto", bias_correction=True
        ),
        "hfmg, balance auto, bias corrected": of("hfmg", balance="auto", bias_correction=True),
        "kl, bias corrected": of("kl", bias_correction=True),
        "AMCT exact, amct-bert-classification.cfg": Quantization(scheme="cfg", cfg=cfg),
    }


WITH_PRODUCTS = (
    "minmax",
    "percentile 99.999",
    "mse",
    "hfmg",
    "mse, balance auto",
    "mse, weights mse, balance auto",
    "AMCT exact, amct-bert-classification.cfg",
)
"""Recipes of the second block."""


# --- one row -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One model over the validation sentences.

    Attributes:
        logits: float32 [sentences, classes].
        seconds, passes: of its calibration; None where there is none, or nobody counted.
        int8, layers: layers in integer kernels, and all that multiply.
    """

    logits: npt.NDArray[np.float32]
    seconds: float | None = None
    passes: float | None = None
    int8: int | None = None
    layers: int | None = None


def row(name: str, run: Run, baseline: Run, targets: npt.NDArray[np.int64]) -> str:
    before, after = (logits.argmax(axis=1) == targets for logits in (baseline.logits, run.logits))
    found = compare(before, after)
    drop = found.drop_pp
    a, b = baseline.logits.astype(np.float64), run.logits.astype(np.float64)
    cosine = float(np.mean((a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))))
    cells = [
        f"{name:48}",
        f"{100 * after.mean():7.2f}",
        f"{drop.value:6.2f} [{drop.low:5.2f}, {drop.high:5.2f}]",
        f"{found.p_value:6.3f}",
        f"{cosine:8.5f}",
        f"{np.abs(a - b).max():7.3f}",
        f"{run.seconds:7.1f}" if run.seconds is not None else f"{'':7}",
        f"{run.passes:6g}" if run.passes is not None else f"{'':6}",
        f"{run.int8:3} of {run.layers:2}" if run.int8 is not None else "",
    ]
    return " ".join(cells).rstrip()


HEADER = f"{'':48} {'acc %':>7} {'drop pp, 95 %':>21} {'p':>6} {'cosine':>8} {'|d|':>7} {'s':>7} {'passes':>6} INT8"


# --- ours ----------------------------------------------------------------------------------------------------------


class CountingRows:
    """A split's source that counts the samples read from it."""

    def __init__(self, source: Any) -> None:
        self.source, self.read_samples = source, 0

    @property
    def size(self) -> int:
        return int(self.source.size)

    @property
    def sha256(self) -> str:
        return str(self.source.sha256)

    @property
    def sequential(self) -> bool:
        return bool(self.source.sequential)

    def read(self, groups: Iterable[Any], length: int | None = None) -> Iterator[Batch]:
        for batch in self.source.read(groups, length):
            self.read_samples += len(batch)
            yield batch


def counted(experiment: Experiment) -> tuple[Experiment, CountingRows]:
    data: Dataset = experiment.dataset
    rows = CountingRows(data.calibration.source)
    return replace(experiment, dataset=replace(data, calibration=replace(data.calibration, source=rows))), rows


def run_ours(
    experiment: Experiment, rows: CountingRows, bench: Bench, quantization: Quantization, sentences: Sequence[Feeds]
) -> Run:
    candidate = Candidate(target="onnxruntime", quantization=quantization, serving=Serving(intra_op_threads=THREADS))
    began, read = time.perf_counter(), rows.read_samples
    shared = 0
    if quantization.calibrated:
        record_of(experiment, candidate, bench)
        shared = quantization.scheme == "static"
    seconds, passes = time.perf_counter() - began, (rows.read_samples - read) / SAMPLES + shared
    artifact, folder = artifact_of(experiment, candidate, bench)
    session = bench.target(candidate).open(artifact, folder, candidate)
    # a dynamic scale is that of the whole batch
    batch = 1 if quantization.scheme == "dynamic" else peers.RUN_BATCH
    logits = peers.logits_of(lambda feeds: np.asarray(session.run(feeds)["logits"]), sentences, batch=batch)
    session.close()
    calibrated = quantization.calibrated
    return Run(
        logits=logits,
        seconds=seconds if calibrated else None,
        passes=passes if calibrated else None,
        int8=artifact.int8_ops,
        layers=artifact.int8_ops + artifact.float_matmuls_left,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--nncf-python", type=Path, help="an interpreter that has nncf, openvino and onnx")
    parser.add_argument("--inc-python", type=Path, help="an interpreter that has onnx-neural-compressor")
    parser.add_argument("--slow", action="store_true", help="also what takes minutes: adaround, others' histograms")
    parser.add_argument("--workspace", type=Path, help="keep results here, and use those that are there")
    parser.add_argument("--block", choices=["linear", "products"], help="one of the two blocks alone")
    parser.add_argument("--only", nargs="*", help="rows whose name contains one of these")
    options = parser.parse_args()
    bench_folder = options.folder.resolve()
    models = sorted(bench_folder.glob("*.onnx"))
    if len(models) != 1:
        raise SystemExit(f"{bench_folder} holds {len(models)} .onnx files, one is needed. Name the benchmark's folder.")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="accuracy-") as temporary:
        _tables(options.workspace or Path(temporary), bench_folder, models[0], options)
    print(f"\n{time.perf_counter() - began:.0f} s in all")


def _tables(workspace: Path, folder: Path, model: Path, options: argparse.Namespace) -> None:
    experiment = _experiment(workspace, folder, model)
    experiment, rows = counted(experiment)
    journal = open_journal(workspace, experiment.name, experiment.identity, fresh=True)
    bench = open_bench(experiment, journal, Store(workspace / "store"), lambda candidate, stage: None)
    batches = list(experiment.dataset.batches("validation", 1))
    feeds = [batch.feeds for batch in batches]
    targets = np.concatenate([np.asarray(batch.targets) for batch in batches])
    calibration = [batch.feeds for batch in experiment.dataset.batches("calibration", 1, stop=SAMPLES)]
    baseline = run_ours(experiment, rows, bench, Quantization(), feeds)

    began = time.perf_counter()
    statistics_of(experiment, bench, Clock())
    print(f"{model.name}: {len(feeds)} sentences, float {100 * np.mean(baseline.logits.argmax(1) == targets):.2f} %")
    print(f"{SAMPLES} calibration sentences; the shared pass took {time.perf_counter() - began:.1f} s")

    layers = quantizable_layers(load_graph(experiment.model))
    products = [layer.name for layer in layers if layer.weight is None]
    named = recipes(CFG.read_text(encoding="utf-8"))
    linear = [layer.name for layer in layers if layer.weight is not None]
    for title, both in ((f"{len(linear)} Linear layers", False), (f"and {len(products)} products", True)):
        if options.block == ("linear" if both else "products"):
            continue
        print(f"\n{title}\n{HEADER}", flush=True)
        for name, quantization in named.items():
            if not _wanted(name, options.only) or (both and name not in WITH_PRODUCTS):
                continue
            if quantization.weight_algorithm == "adaround" and not options.slow:
                continue
            if quantization.cfg is not None:
                skipped = () if both else products
                text = quantization.cfg + "".join(f'\nskip_layers: "{product}"' for product in skipped)
                quantization = replace(quantization, cfg=text)
            else:
                quantization = replace(quantization, attention_matmul=both)
            try:
                run = run_ours(experiment, rows, bench, quantization, feeds)
            except (WorkbenchError, ValueError) as error:
                print(f"{name:48} failed: {error}", flush=True)
                continue
            print(row(name, run, baseline, targets), flush=True)
        skipped = () if both else tuple(products)
        notes = []
        for peer in peers.all_peers(options.nncf_python, options.inc_python, linear_only=not both, slow=options.slow):
            if not _wanted(peer.name, options.only):
                continue
            job = peers.Job(
                model=model, calibration=calibration, validation=feeds, skipped=skipped, folder=workspace / "peers"
            )
            found = peer.run(job)
            if isinstance(found, str):
                notes.append(f"{peer.name}: {found}")
            else:
                print(row(peer.name, Run(**dataclasses.asdict(found)), baseline, targets), flush=True)
        for note in notes:
            print(f"    {note}")


def _wanted(name: str, only: Sequence[str] | None) -> bool:
    return not only or any(text in name for text in only)


def _experiment(workspace: Path, folder: Path, model: Path) -> Experiment:
    for part, name, text in (
        ("calibration", "data.yaml", MANIFEST.format(bench=folder)),
        ("experiments", "accuracy.yaml", EXPERIMENT.format(model=model, root=ROOT, calibration=CALIBRATIONS)),
    ):
        (workspace / part).mkdir(parents=True, exist_ok=True)
        (workspace / part / name).write_text(text, encoding="utf-8")
    return read_experiment(workspace / "experiments" / "accuracy.yaml", workspace)


if __name__ == "__main__":
    main()
