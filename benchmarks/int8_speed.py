"""INT8 on a CPU against its peers: one table of speed and accuracy. Run by hand.

    python -m benchmarks.int8_speed [--bench DIR] [--nncf-python PYTHON] [--threads 2 1] [--rounds 15]

Speed is the ratio of float ONNX Runtime's time to the row's, over the same feeds. All rows are timed in one process,
one after the other within a round and in the opposite order in the next one; the table gives the median over rounds
and, in parentheses, the quarter and three quarters of them. Feeds are random tokens without padding. Accuracy is top-1
over `validation.csv`. No runtime's threads spin. `--bench` holds a model with `input_ids` and `attention_mask`, its
`tokenizer.json`, `labels.json`, `calibration.csv` and `validation.csv` (columns `text` and `label`). NNCF is called
through the interpreter given, which has nncf and openvino installed.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from tokenizers import Tokenizer

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.targets import open_target
from workbench.targets.base import Feeds
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.openvino.compiler import load
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Quantization, Serving

REPOSITORY = Path(__file__).parent.parent
SHAPES = ((1, 16), (1, 32), (1, 64), (8, 64))
LENGTH, CALIBRATION = 64, 300
BLOCK_S = 0.06
"""Seconds of one row in one round, at least one call."""

OURS = Quantization(
    scheme="static",
    algorithm="mse",
    activation_symmetric=False,
    weight_granularity="channel",
    weight_algorithm="minmax",
    attention_matmul=True,
    keep_float=0,
)
RECIPES = {
    "workbench static, ONNX Runtime": ("onnxruntime", replace(OURS, attention_matmul=False)),
    "workbench static + attention, ORT": ("onnxruntime", OURS),
    "workbench dynamic, ONNX Runtime": ("onnxruntime", Quantization(scheme="dynamic", weight_granularity="channel")),
    "workbench static, OpenVINO": ("openvino", replace(OURS, balance=0.8)),
}
"""What a sweep chooses from. In ONNX Runtime INT8 attention gains where sequences are long; in OpenVINO balancing
brings logits nearer to float's (relative error 0.036 against 0.062 without, NNCF 0.035)."""

SKIP_NORM = "SkipLayerNormFusion"
"""Its kernel is several times slower than Add and LayerNormalization (ONNX Runtime 1.31.1): without it quantize_dynamic
is at its best, which its documentation does not say."""

Run = Callable[[Feeds], np.ndarray]
Open = Callable[[int], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `open` gives a session with that many threads, `absent` says why there is none."""

    label: str
    open: Open | None = None
    absent: str = ""
    int8: str = ""


# --- data ----------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, folder: Path) -> None:
        (self.model,) = folder.glob("*.onnx")
        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LENGTH)
        self.tokenizer.enable_padding()
        self.labels: list[str] = json.loads((folder / "labels.json").read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.folder / name).open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    def feeds(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        encoded = self.tokenizer.encode_batch(list(texts))
        return {
            "input_ids": np.array([e.ids for e in encoded], np.int64),
            "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
        }

    def calibration(self, batch: int) -> Iterator[dict[str, np.ndarray]]:
        texts = [row["text"] for row in self.rows("calibration.csv")][:CALIBRATION]
        for start in range(0, len(texts), batch):
            yield self.feeds(texts[start : start + batch])

    def accuracy(self, run: Run) -> float:
        rows = sorted(self.rows("validation.csv"), key=lambda row: len(row["text"]))
        known = {label: index for index, label in enumerate(self.labels)}
        truth = [int(row["label"]) if row["label"].isdigit() else known[row["label"]] for row in rows]
        right = 0
        for start in range(0, len(rows), 32):
            logits = run(self.feeds([row["text"] for row in rows[start : start + 32]]))
            right += int((logits.argmax(-1) == truth[start : start + 32]).sum())
        return right / len(rows)


def random_feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(batch * 1000 + length).integers(1000, 20000, (batch, length))
    return {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64)}


# --- rows ----------------------------------------------------------------------------------------------------------


def onnxruntime_file(path: Path, *disabled: str) -> Open:
    """What ONNX Runtime makes of a file by itself, all optimizations on but those named."""

    def opened(threads: int) -> Run:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled)
        )
        return lambda feeds: session.run(None, feeds)[0]

    return opened


def openvino_file(path: Path) -> Open:
    def opened(threads: int) -> Run:
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        compiled = load(str(path), properties, str(path))
        request, output = compiled.create_infer_request(), compiled.output(0)
        return lambda feeds: request.infer(feeds, share_inputs=True)[output]

    return opened


def candidate(target: str, quantization: Quantization) -> Candidate:
    settings = OpenVinoCompile() if target == "openvino" else OnnxRuntimeCompile()
    return Candidate(target=target, quantization=quantization, compile=settings)


def ours(
    bench: Bench, label: str, target: str, quantization: Quantization, record: QuantizationRecord | None, to: Path
) -> Row:
    chosen, vendor = candidate(target, quantization), open_target(target)
    for part in ("lowered", "compiled"):
        (to / part).mkdir(parents=True)
    lowered = vendor.lower(read_model(bench.model), chosen, record, to / "lowered")
    artifact: Artifact = vendor.compile(lowered, chosen, to / "compiled")

    def opened(threads: int) -> Run:
        served = replace(chosen, serving=Serving(intra_op_threads=threads))
        session = vendor.open(artifact, to / "compiled", served)
        return lambda feeds: next(iter(session.run(feeds).values()))

    return Row(label=label, open=opened, int8=f"{artifact.int8_ops}/{artifact.int8_ops + artifact.float_matmuls_left}")


class Reader(CalibrationDataReader):
    def __init__(self, feeds: Iterator[Feeds]) -> None:
        self.feeds = feeds

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def onnxruntime_peers(bench: Bench, to: Path) -> list[Row]:
    dynamic, prepared, static = (to / f"{name}.onnx" for name in ("dynamic", "prepared", "static"))
    quantize_dynamic(bench.model, dynamic)
    # its symbolic shape inference gives up on exports with computed masks; this is its own way out
    quant_pre_process(bench.model, prepared, skip_symbolic_shape=True)
    # the settings ONNX Runtime's documentation gives for x86 with VNNI: U8S8 and QDQ
    quantize_static(
        prepared,
        static,
        Reader(bench.calibration(1)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return [
        Row(label="quantize_dynamic, ONNX Runtime", open=onnxruntime_file(dynamic)),
        Row(label=f"the same without {SKIP_NORM}", open=onnxruntime_file(dynamic, SKIP_NORM)),
        Row(label="quantize_static, ONNX Runtime", open=onnxruntime_file(static)),
    ]


def nncf_peer(bench: Bench, python: str | None, to: Path) -> Row:
    label = "NNCF INT8, OpenVINO"
    if python is None:
        return Row(label=label, absent="no --nncf-python was given")
    samples = {
        f"{name}/{number}": array for number, feeds in enumerate(bench.calibration(1)) for name, array in feeds.items()
    }
    np.savez(to / "feeds.npz", **samples)
    program = Path(__file__).with_name("nncf_quantize.py")
    done = subprocess.run(
        [python, str(program), str(bench.model), str(to / "feeds.npz"), str(to / "nncf.xml")],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        return Row(label=label, absent=(done.stderr.strip().splitlines() or ["it failed without a word"])[-1])
    print("peer:", done.stdout.splitlines()[-1])
    return Row(label=label, open=openvino_file(to / "nncf.xml"))


def rows(bench: Bench, nncf_python: str | None, to: Path) -> list[Row]:
    model = read_model(bench.model)
    layers = quantizable_layers(normalized(load_graph(model)))
    statistics = observe(model, bench.calibration(8))
    made = []
    for number, (label, (target, quantization)) in enumerate(RECIPES.items()):
        record = None
        if quantization.calibrated:
            recipe = recipe_of(quantization, layers)
            record = derive_record(model, recipe, statistics, lambda: bench.calibration(8))
        made.append(ours(bench, label, target, quantization, record, to / str(number)))
    return [
        Row(label="float ONNX Runtime", open=onnxruntime_file(bench.model)),
        *onnxruntime_peers(bench, to),
        *made[:-1],
        ours(bench, "float OpenVINO", "openvino", Quantization(), None, to / "float"),
        nncf_peer(bench, nncf_python, to),
        made[-1],
    ]


# --- timing --------------------------------------------------------------------------------------------------------


def times_ms(runs: Sequence[Run], feeds: Feeds, rounds: int) -> np.ndarray:
    """Milliseconds per call, [runs, rounds]."""
    calls = []
    for run in runs:
        run(feeds)
        began = time.perf_counter()
        run(feeds)
        calls.append(max(1, int(BLOCK_S / (time.perf_counter() - began))))
    found = np.empty((len(runs), rounds))
    for number in range(rounds):
        order = range(len(runs)) if number % 2 == 0 else reversed(range(len(runs)))
        for index in order:
            runs[index](feeds)  # brings its weights back into the caches
            began = time.perf_counter()
            for _ in range(calls[index]):
                runs[index](feeds)
            found[index, number] = (time.perf_counter() - began) / calls[index] * 1e3
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--nncf-python", help="an interpreter with nncf and openvino")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    bench = Bench(arguments.bench.resolve())
    with tempfile.TemporaryDirectory(prefix="workbench-int8-speed-") as folder:
        table = rows(bench, arguments.nncf_python, Path(folder))
        print(f"{platform.machine()}, {CALIBRATION} sentences for calibration, {arguments.rounds} rounds")
        present = [row for row in table if row.open is not None]
        accuracy = {row.label: bench.accuracy(row.open(2)) for row in present if row.open is not None}
        for threads in arguments.threads:
            runs = [row.open(threads) for row in present if row.open is not None]
            ratios = {}
            for shape in SHAPES:
                measured = times_ms(runs, random_feeds(*shape), arguments.rounds)
                for row, found in zip(present, measured, strict=True):
                    ratios[row.label, shape] = np.percentile(measured[0] / found, [25, 50, 75])
            print(f"\nthreads {threads}; times faster than float ONNX Runtime at (batch, length)")
            print(f"{'':34}{'top-1':>8}{'INT8':>7}" + "".join(f"{shape!s:>19}" for shape in SHAPES))
            for row in table:
                if row.open is None:
                    print(f"{row.label:34}  absent: {row.absent}")
                    continue
                cells = "".join(
                    f"{f'{middle:.2f} ({low:.2f}-{high:.2f})':>19}"
                    for low, middle, high in (ratios[row.label, shape] for shape in SHAPES)
                )
                print(f"{row.label:34}{accuracy[row.label]:8.4f}{row.int8:>7}{cells}", flush=True)
            for name, mine, theirs in (
                ("our best ORT over ORT's own best", ("workbench", "ONNX Runtime", "ORT"), ("quantize_",)),
                ("our OpenVINO over NNCF's", ("workbench", "OpenVINO", "OpenVINO"), ("NNCF",)),
            ):
                cells = ""
                for shape in SHAPES:
                    medians = {row.label: ratios[row.label, shape][1] for row in present}
                    best = max(
                        m for label, m in medians.items() if label.startswith(mine[0]) and label.endswith(mine[1:])
                    )
                    others = [m for label, m in medians.items() if label.startswith(theirs)]
                    cells += f"{best / max(others):19.2f}" if others else f"{'absent':>19}"
                print(f"{name:49}{cells}", flush=True)


if __name__ == "__main__":
    main()
