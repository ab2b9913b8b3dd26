"""Does a limit on recall@10 find a sentence encoder that became worse? INT8's own loss, then planted ones. By hand.

    python -m benchmarks.retrieval_gates

The encoder is the classifier of ../shared up to its pooled vectors; documents of a query's label are right. The limit
looks at 520 queries, the truth is what 1560 others say: worse is where that whole interval is over the limit, harmless
where it is below. All is scored as in a sweep, but for states that the float encoder was run for once.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from benchmarks.recorded.measuring import machine
from workbench.api.opening import opened
from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.build import artifact_of
from workbench.inputs.metrics.outcomes import Outcomes, per_sample, summarize
from workbench.inputs.metrics.retrieval_scorer import RetrievalScorer, Side
from workbench.values.candidate import EVERYTHING_INT8, Candidate, Serving
from workbench.values.measurement import Estimate
from workbench.values.preprocess import Feeds
from workbench.values.significance import compare

BENCH = Path(__file__).resolve().parents[2] / "shared" / "bench" / "banking77"
LIMIT_PP, BATCH, EMBEDDING, FED = 1.0, 32, "/Div_output_0", ["input_ids", "attention_mask"]
LAST, FINAL = (f"/encoder/encoder/layer.{n}/output/LayerNorm/LayerNormalization_output_0" for n in (4, 5))
MANIFEST = f"""
version: 1
task: tensors
files: {{calibration: {BENCH}/calibration.csv, validation: {BENCH}/validation.csv}}
split: {{holdout_fraction: 0.75}}
tokenizer: {BENCH}/tokenizer.json
max_length: 96
retrieval: {{corpus: {BENCH}/calibration.csv, relevance: label, k: 10, output: {EMBEDDING}}}
"""
SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [channel], when: {quantization.scheme: [dynamic]}}
"""
EXPERIMENT = """
version: 1
name: encoder
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../spaces/e.yaml
"""
Array = npt.NDArray[Any]
Change = Callable[[Array, float], Array]
normal = np.random.default_rng(0).standard_normal
MIXED = normal((384, 384)) / np.sqrt(384)
KINDS: dict[str, tuple[str, tuple[float, ...], float, Change]] = {
    "noise in weights": ("weights", (0.4, 0.5, 0.6, 0.8), 0.03, lambda a, x: a + x * a.std() * normal(a.shape)),
    "scales wrong by e^": (
        "weights",
        (0.35, 0.4, 0.5, 0.6),
        0.02,
        lambda a, x: a * np.exp(x * normal((1, a.shape[1]))),
    ),
    "weights in steps of": ("weights", (0.12, 0.16, 0.2, 0.3), 0.02, lambda a, x: rounded(a, x * np.abs(a).max())),
    "saturated at": ("states", (0.9, 0.8, 0.7, 0.5), 4, lambda a, x: np.clip(a, -x, x)),
    "texts cut to": ("tokens", (20, 16, 12, 8), 50, lambda a, x: np.append(a[: int(x) - 1], a[-1])),
    "first token for": ("first", (1.0, 0.95, 0.9, 0.85), 0.04, lambda a, x: a * x),
    "noise in vectors": ("vectors", (1.2, 1.4, 1.7, 2), 0.1, lambda a, x: a + x * np.sin(40 * a @ MIXED) * a.std()),
    "next text's vector by": ("vectors", (0.35, 0.4, 0.5, 0.7), 0.02, lambda a, x: a + x * np.roll(a, 1, axis=0)),
    "numbers lost": ("vectors", (0.8, 0.85, 0.9, 0.95), 0.06, lambda a, x: a * (np.arange(384) >= x * 384)),
    "rectified at": ("vectors", (0.8, 1.1, 1.4, 1.7), -2.5, lambda a, x: np.maximum(a, x * a.std())),
}
"""Fault → what it changes, sizes that are meant to be worse, the first of the harmless ones, and how."""


def rounded(a: Array, step: float) -> Array:
    return np.asarray(np.round(a / step) * step)


class Encoder:
    """The float encoder, whose states are kept by text, and what changed ones make of them."""

    def __init__(self, parts: Any) -> None:
        self._tail, self._known = parts.extract_model([LAST, *FED], [FINAL]), dict[bytes, list[Array]]()
        self._before, self._last = session_of(parts.extract_model(FED, [LAST])), session_of(self._tail)

    def changed(self, what: str, size: float, how: Change) -> Callable[[Feeds], dict[str, Array]]:
        """What runs an encoder with one fault of this size."""
        part = onnx.ModelProto()
        part.CopyFrom(self._tail)
        products = {node.input[1] for node in part.graph.node if node.op_type == "MatMul"}
        for one in (one for one in part.graph.initializer if what == "weights" and one.name in products):
            other = how(onnx.numpy_helper.to_array(one), size).astype(np.float32)
            one.CopyFrom(onnx.numpy_helper.from_array(other, one.name))
        session = session_of(part) if what in ("weights", "states") else None

        def run(feeds: Feeds) -> dict[str, Array]:
            texts = [ids[mask == 1] for ids, mask in zip(feeds[FED[0]], feeds[FED[1]], strict=True)]
            texts = [how(t, size) if what == "tokens" and len(t) > size else t for t in texts]
            if new := [ids for ids in texts if ids.tobytes() not in self._known]:
                self._run(new)
            last, final = (padded([self._known[ids.tobytes()][n] for ids in texts]) for n in (0, 1))
            mask = padded([np.ones_like(ids) for ids in texts])
            if session is not None:
                last = how(last, size) if what == "states" else last
                final = session.run(None, {LAST: last, FED[0]: mask, FED[1]: mask})[0]
            vectors = (final * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            vectors = how(final[:, 0], size) + (1 - size) * vectors if what == "first" else vectors
            return {EMBEDDING: (how(vectors, size) if what == "vectors" else vectors).astype(np.float32)}

        return run

    def _run(self, texts: list[Array]) -> None:
        fed = dict(zip(FED, (padded(texts), padded([np.ones_like(one) for one in texts])), strict=True))
        before = self._before.run(None, fed)[0]
        for one, *states in zip(texts, before, self._last.run(None, {LAST: before, **fed})[0], strict=True):
            self._known[one.tobytes()] = [each[: len(one)].copy() for each in states]


def session_of(part: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(part.SerializeToString(), options)


def padded(rows: list[Array]) -> Array:
    made = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), rows[0].dtype)
    for own, row in zip(made, rows, strict=True):
        own[: len(row)] = row
    return made


def loss(exact: Outcomes, found: Outcomes) -> Estimate:
    return compare(per_sample(exact), per_sample(found)).drop_pp


def main() -> None:
    if not BENCH.is_dir():
        print(f"skipped: the encoder and its texts are not in {BENCH}")
        return
    began, counts = time.process_time(), dict.fromkeys([(m, a) for m in (True, False) for a in (True, False)], 0)
    parts = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(onnx.load(BENCH / "minilm_l6_banking77.onnx")))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as closing:
        root = Path(name)
        for place, text in (
            ("data/manifest", MANIFEST),
            ("spaces/e", SPACE),
            ("experiments/e", EXPERIMENT),
        ):
            (root / place).parent.mkdir()
            (root / f"{place}.yaml").write_text(text, encoding="utf-8")
        onnx.save(parts.extract_model(FED, [EMBEDDING]), root / "data" / "model.onnx")
        question, bench = closing.enter_context(opened(root / "experiments" / "e.yaml", scratch=True))
        data, use = question.dataset, question.dataset.retrieval
        assert use is not None
        int8 = Candidate(target="onnxruntime", quantization=EVERYTHING_INT8, serving=Serving(batch=BATCH))
        files = {one: artifact_of(question, one, bench) for one in (question.baseline, int8)}
        sessions = [bench.target(one).open(*file, one) for one, file in files.items()]
        of_files = {"artifact": files[int8][0], "session": sessions[1], "baseline": sessions[0]}
        ours = AccuracyPass(question, int8, bench, "holdout", **of_files)  # type: ignore[arg-type]  # each its own
        drop, recall = loss(ours.reference_outcomes(), ours.full()), summarize(ours.full())["recall_at_10"]
        print(f"{machine()}\nINT8: recall@10 {recall:.4f}, loss {drop.value:.2f} pp [{drop.low:.2f}, {drop.high:.2f}]")
        encoder = Encoder(parts)
        exact = Side(run=encoder.changed("", 0, rounded), corpus=use.corpus, batch=BATCH)

        def scored(own: Side) -> list[Outcomes]:
            """Of the queries that the limit looks at, and of the others."""
            scorer, queries = RetrievalScorer(use, data.path), data.validation.source
            scorer.search(own, exact, queries, lambda build: bench.store.get_or_build("index", "float", build).path)
            splits = [data.batches(split, BATCH) for split in ("validation", "holdout")]
            return [scorer.score_all((own.run(b.feeds), b, exact.run(b.feeds)) for b in batches) for batches in splits]

        right = scored(exact)
        for kind, number, meant in itertools.product(KINDS, range(4), (True, False)):
            what, sizes, harmless, how = KINDS[kind]
            size = sizes[number] if meant else harmless * (1 + number / 4)
            own = Side(run=encoder.changed(what, size, how), corpus=use.corpus, batch=BATCH)
            seen, true = (loss(*pair) for pair in zip(right, scored(own), strict=True))
            alarm, known = seen.value > LIMIT_PP, true.low > LIMIT_PP if meant else true.high < LIMIT_PP
            counts[meant, alarm] += known
            words = f"seen {seen.value:.2f}{' alarm' if alarm else ''}{'' if known else ' (near the limit)'}"
            print(f"{kind} {size:g}: {true.value:.2f} pp [{true.low:.2f}, {true.high:.2f}], {words}", flush=True)
    found, alarms = (f"{counts[m, True]} of {counts[m, True] + counts[m, False]}" for m in (True, False))
    print(f"found of what is worse: {found}; false alarms of what is harmless: {alarms}")
    print(f"{time.process_time() - began:.0f} s of one processor")


if __name__ == "__main__":
    main()
