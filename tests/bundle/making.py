"""Bundles of small models, and hands that change them."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.evaluations import evaluation
from tests.small_graphs import write_graph
from tests.tiny import EXPERIMENT, write_workspace
from workbench.bundle.golden import GoldenBatch, golden_batches
from workbench.bundle.manifest import Tolerance
from workbench.bundle.opened import read_bundle
from workbench.bundle.paths import sums_text
from workbench.bundle.readme import description, provenance
from workbench.bundle.verify import check_files, verify_bundle
from workbench.bundle.write import BundleContents
from workbench.evaluation.bench import open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.graph.read import read_model
from workbench.inputs.experiment import read_experiment
from workbench.quantization.record import Provenance, QuantizationRecord, write_record
from workbench.search.pipeline import evaluate
from workbench.shipping.handover import bundle_contents, hand_over
from workbench.shipping.promotion import Limits
from workbench.shipping.promotion.accuracy import float_check
from workbench.space.space import build, complete
from workbench.targets import open_target
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import file_digest
from workbench.values.measurement import Estimate
from workbench.values.preprocess import TokenInput, collate, encode, open_preprocessor
from workbench.values.results import Evaluation

needs_minisign = pytest.mark.skipif(shutil.which("minisign") is None, reason="minisign is not installed")

WORDS = ("[PAD]", "[UNK]", "loan", "pay", "due", "张", "三")


TEXTS = (("loan pay", "due"), ("张 三 loan due pay loan",))


def write_model(path: Path) -> None:
    """input_ids [batch, length] → embedding → MatMul → mean over length → logits [batch, 3]."""
    rng = np.random.default_rng(0)
    weights = {"table": (len(WORDS), 32), "w0": (32, 32), "w1": (32, 3)}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"], name="embed"),
        helper.make_node("MatMul", ["e", "w0"], ["h"], name="dense0"),
        helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
        helper.make_node("ReduceMean", ["t"], ["m"], name="mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["m", "w1"], ["logits"], name="dense1"),
    ]
    ids = (TensorProto.INT64, ["batch", "length"])
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in weights.items()}
    write_graph(path, nodes, {"input_ids": ids}, {"logits": ["batch", 3]}, **drawn)


def write_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))


def evaluated(candidate: Candidate, split: str, **chosen: float) -> Evaluation:
    """An evaluation of `candidate` with chosen numbers, on this machine's toolchain."""
    made = evaluation(**chosen)  # type: ignore[arg-type]  # numbers only
    return dataclasses.replace(
        made,
        candidate=candidate,
        split=split,  # type: ignore[arg-type]  # a Split
        toolchain=open_target("onnxruntime").toolchain(),
    )


def contents_of(
    root: Path,
    candidate: Candidate,
    golden: Sequence[tuple[Sequence[str], Mapping[str, Any]]],
    *,
    record: QuantizationRecord | None = None,
    spoilt: bool = False,
    **contents: Any,
) -> BundleContents:
    """Of `model.onnx` in a folder; golden outputs are what it gives, or something else where they are spoilt."""
    model, target = read_model(root / "model.onnx"), open_target(candidate.target)
    for name in ("lowered", "compiled"):
        (root / name).mkdir()
    scales = record if candidate.quantization.calibrated else None
    lowered = target.lower(model, candidate, scales, root / "lowered")
    artifact = target.compile(lowered, candidate, root / "compiled")
    session, batches = target.open(artifact, root / "compiled", candidate), []
    for texts, feeds in golden:
        outputs = {name: array + np.float32(spoilt) for name, array in session.run(feeds).items()}
        batches.append(GoldenBatch(feeds=feeds, outputs=outputs, texts=tuple(texts)))
    session.close()
    if record is not None:
        write_record(record, root / "record.json")
    told: dict[str, Any] = {
        "evaluations": (dataclasses.replace(evaluated(candidate, "validation"), toolchain=artifact.toolchain),),
        "baseline": (),
        "datasets": {"validation": "b" * 64},
        "tolerance": Tolerance(absolute=1e-4, relative=1e-4),
        "record": None if record is None else root / "record.json",
    }
    return BundleContents(
        candidate=candidate,
        artifact=artifact,
        artifact_directory=root / "compiled",
        model=model,
        golden=tuple(batches),
        **(told | contents),
    )


def text_contents(root: Path) -> BundleContents:
    """What a bundle of the INT8 text classifier is made of, below `root`."""
    write_model(root / "model.onnx")
    write_tokenizer(root / "tok.json")
    candidate = Candidate(
        target="onnxruntime", quantization=Quantization(scheme="dynamic", weight_granularity="channel")
    )
    preprocessor = open_preprocessor(
        root / "tok.json", max_length=8, bins=(4, 8), inputs=[TokenInput(name="input_ids", role="ids")]
    )
    record = QuantizationRecord(
        model_sha256=file_digest(root / "model.onnx"),
        layers=(),
        float_layers=(),
        provenance=Provenance(engine="native", recipe={}, statistics=None, code_revision="1"),
    )
    return contents_of(
        root,
        candidate,
        [(texts, collate(preprocessor, encode(preprocessor, texts))) for texts in TEXTS],
        record=record,
        name="text-int8",
        about="a small text classifier",
        task="classification",
        evaluations=(
            evaluated(candidate, "validation", accuracy=0.951, drop_pp=0.2, speedup=1.8),
            evaluated(candidate, "holdout", accuracy=0.947, drop_pp=0.3, speedup=1.7),
        ),
        baseline=(evaluated(Candidate(target="onnxruntime"), "validation"),),
        datasets={"calibration": "a" * 64, "validation": "b" * 64, "holdout": "c" * 64},
        labels=("同意", "拒绝", "other"),
        preprocessor=preprocessor,
        tolerance=Tolerance(absolute=1e-3, relative=1e-3),
    )


def exact(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


STATIC = """
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [channel], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
"""


SPACE = """
version: 1
target: TARGET
parameters:
  quantization.scheme: {choices: [none, static, cfg]}
  quantization.cfg: {choices: [my.cfg], when: {quantization.scheme: [cfg]}}
  serving.intra_op_threads: {choices: [1]}
"""


def exported(root: Path, target: str, scheme: str, *, confirmed: bool = False) -> Path:
    """The bundle of one candidate of a small classifier, evaluated in full by a real sweep's means."""
    (root / "search_spaces").mkdir(parents=True)
    (root / "search_spaces" / "my.cfg").write_text("batch_num: 2\n", encoding="utf-8")
    lenient = EXPERIMENT.replace("accuracy_loss_pp: 2.0", "accuracy_loss_pp: 10.0")  # OpenVINO may have 7 bits here
    space = SPACE.replace("TARGET", target) + STATIC.lstrip("\n")
    question = read_experiment(write_workspace(root, experiment=lenient, space=space))
    journal = open_journal(question.workspace, question.name, question.identity)
    with contextlib.closing(Store(question.workspace / ".workbench" / "store")) as store:
        bench = open_bench(question, journal, store, lambda candidate, stage: None)
        chosen = build(question.space, complete(question.space, {"quantization.scheme": scheme}))
        for candidate in (question.baseline, chosen):
            journal.write(evaluate(question, candidate, bench))
            if confirmed:
                journal.write(evaluate(question, candidate, bench, split="holdout", gates=False))
        return hand_over(root / "bundle", bundle_contents(question, chosen, bench, journal))


def reseal(folder: Path, change: dict[str, object]) -> None:
    """Write a changed manifest with sums that fit: what a careless hand, or a later version, would leave."""
    manifest = {**body_of(folder), **change}
    for name in manifest["files"]:
        if (folder / name).is_file():
            sha256 = file_digest(folder / name)
            manifest["files"][name] = {"sha256": sha256, "size_bytes": (folder / name).stat().st_size}
    for compiled in manifest["artifact"]["files"] if "artifact" not in change else ():
        compiled |= manifest["files"].get(f"model/{compiled['file']}", {})
    seal(folder, manifest)


def emulated(contents: BundleContents) -> BundleContents:
    toolchain = dataclasses.replace(contents.artifact.toolchain, emulated=True)
    return dataclasses.replace(
        contents,
        artifact=dataclasses.replace(contents.artifact, toolchain=toolchain),
        evaluations=tuple(dataclasses.replace(e, toolchain=toolchain) for e in contents.evaluations),
    )


Keys = tuple[str | int, ...]


def body_of(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def seal(folder: Path, body: Any, text: str | None = None) -> None:
    """Put a manifest in place with sums that fit everything it lists."""
    content = json.dumps(body) if text is None else text
    (folder / "manifest.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    sums = {"manifest.json": file_digest(folder / "manifest.json")}
    listed = body.get("files", {}) if isinstance(body, dict) else {}
    for name, entry in listed.items() if isinstance(listed, dict) else ():
        sums[name] = str(entry.get("sha256")) if isinstance(entry, dict) else "0" * 64
    with contextlib.suppress(UnicodeEncodeError):
        (folder / "SHA256SUMS").write_bytes(sums_text(sums).encode())


def put(body: Any, keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        body = body[key]
    body[keys[-1]] = value


def places(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Every place in JSON data, inner nodes too."""
    if keys:
        yield keys
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*keys, key))


def use(folder: Path, *, replay: bool = False) -> None:
    """What every command does with a bundle before and beside running its model."""
    bundle = read_bundle(folder)
    check_files(bundle)
    provenance(bundle)
    description(bundle)
    golden_batches(bundle)
    float_check(bundle.manifest, Limits())
    if replay:
        verify_bundle(folder)


BENT: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 31, 1 << 63, 10**400, 1e308, -0.5),
    *("", "../x", "\x1b[2J", "\ud800", "x" * 100_000, [], {}, [[]], [None], {"a": 1}),
)
