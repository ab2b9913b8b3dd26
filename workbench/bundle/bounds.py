"""What a manifest may say: numbers within reason, names of files that are there, parts that fit each other.

A manifest is written by us and read from strangers. Whatever a value is used for later (a loop, an allocation, a
thread, a division), it is bounded here, before anything is done with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from workbench.bundle.manifest import Manifest
from workbench.bundle.paths import name_fault
from workbench.targets import described, target_names
from workbench.values.dimension import MOST_BATCH, MOST_LENGTH, MOST_THREADS
from workbench.values.documents.json_reader import loads

MOST_RELATIVE, MOST_ABSOLUTE = 0.05, 1e-3
"""Of a tolerance: as a share of each value, and as a number; a larger absolute one must be within the same share of
the largest golden output (`absolute_fault`). Export writes a hundredth at most."""
MOST_WORKERS = 1024
MOST_BINS, MOST_INPUTS = 1024, 256
MOST_PAD = 1e30
MOST_GOLDEN, MOST_FILES, MOST_LABELS = 4096, 65_536, 1 << 20
MOST_DIMENSION, MOST_RANK = 1 << 40, 16
MOST_NAME = 200
MOST_BYTES = {
    **{"golden": 1 << 30, "golden_texts": 1 << 28, "text.tokenizer": 1 << 28, "outcomes.file": 1 << 30},
    **{"agreement": 1 << 26},
}
MOST_MODEL_BYTES = 1 << 40
_LARGEST_INT = 1 << 63
LANGUAGE = "language"
"""The task of a language model: its bundle holds prompts in place of samples, and engines of others serve it."""
_TASKS = ("classification", "ner", "tensors", LANGUAGE)
"""`workbench.inputs.dataset.Task`; a service does not import the readers of datasets."""
_TOKEN_TYPES = ("int32", "int64", "uint8", "int8", "int16", "float32", "float16", "bool")
_TENSOR_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128", "object"),
)
"""NumPy's names of what a model can take or give; a text is an object."""
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor or turn its text around."""


def value_fault(value: Any, path: str) -> str:
    """What is wrong with a number or a text anywhere in JSON data that was read within bounds; '' where nothing is."""
    if isinstance(value, dict):
        found = (value_fault(key, f"a key of {path}") or value_fault(v, f"{path}.{key}") for key, v in value.items())
        return next(filter(None, found), "")
    if isinstance(value, list):
        return next(filter(None, (value_fault(v, f"{path}[{i}]") for i, v in enumerate(value))), "")
    if isinstance(value, int) and abs(value) >= _LARGEST_INT:
        return f"{path} is a whole number of more than 63 bits"
    if isinstance(value, str) and (match := _CONTROLS.search(value)):
        return f"{path} holds the character U+{ord(match[0]):04X}"
    return ""


def json_object(content: bytes, about: str) -> dict[str, Any]:
    """A JSON object of a bundle, its numbers and texts within bounds.

    Raises:
        ValueError: it is none; says why.
    """
    body = loads(content)
    if fault := value_fault(body, about):
        raise ValueError(fault)
    if not isinstance(body, dict):
        raise ValueError("it holds no JSON object")
    return body


def manifest_faults(manifest: Manifest) -> Iterator[str]:
    """What no sound manifest says, in words; nothing is read from disk."""
    yield from _identity(manifest)
    yield from _files(manifest)
    yield from _artifact(manifest)
    yield from _numbers(manifest)
    yield from _tensors(manifest)
    for evaluation in manifest.evaluations:
        if evaluation.candidate.id != manifest.candidate_id:
            yield "an evaluation is of another candidate"
    for number, evaluation in enumerate((*manifest.evaluations, *manifest.baseline)):
        latency = evaluation.measurement.latency
        if latency is not None and not 1e-6 < latency.drift < 1e6:
            yield f"the drift of evaluation {number} is {latency.drift:.4g}, no ratio"
        service = evaluation.measurement.service
        for before in () if service is None or service.best is None else (service.untuned, service.at_untuned_bins):
            if before is not None and not before.throughput_per_s.value > 0:
                yield f"the untuned service of evaluation {number} answers nothing"
        accuracy = evaluation.measurement.accuracy
        if accuracy is not None and accuracy.primary not in accuracy.values:
            yield f"evaluation {number} has no value of its metric {accuracy.primary[:40]!r}"


def absolute_fault(absolute: float, largest: float, share: float = MOST_RELATIVE) -> str:
    """Whether an absolute tolerance is small beside the largest golden output; '' where it is."""
    if absolute <= max(MOST_ABSOLUTE, share * largest):
        return ""
    return (
        f"its absolute tolerance {absolute:g} is more than {share:.0%} of the largest golden output "
        f"({largest:g}): replaying would prove nothing"
    )


def _identity(manifest: Manifest) -> Iterator[str]:
    if not 0 < len(manifest.name) <= MOST_NAME or any(c in manifest.name for c in "/\\\t\n\r:"):
        yield f"the name {manifest.name[:40]!r} cannot name a folder of {MOST_NAME} characters"
    if manifest.task not in _TASKS:
        yield f"the task {manifest.task[:40]!r} is none of {', '.join(_TASKS)}"
    if manifest.candidate_id != manifest.candidate.id:
        yield "candidate_id is not the id of the candidate"
    if len(manifest.labels) > MOST_LABELS:
        yield f"{len(manifest.labels)} labels are more than {MOST_LABELS}"
    if len(set(manifest.labels)) != len(manifest.labels):
        yield "labels: two are equal"
    if manifest.task == "ner" and not all(tag == "O" or re.fullmatch("[BI]-.+", tag) for tag in manifest.labels):
        yield "labels: one is no BIO tag"
    try:
        datetime.fromisoformat(manifest.created_at)
    except ValueError:
        yield f"created_at {manifest.created_at[:40]!r} is no time"


def _files(manifest: Manifest) -> Iterator[str]:
    if len(manifest.files) > MOST_FILES:
        yield f"{len(manifest.files)} files are more than {MOST_FILES}"
    for name, listed in manifest.files.items():
        if fault := name_fault(name):
            yield f"files: the name {name[:80]!r} {fault}"
        if not _SHA256.fullmatch(listed.sha256) or not 0 <= listed.size_bytes <= MOST_MODEL_BYTES:
            yield f"files: the sum or the size of {name[:80]!r} is none"
    text, outcomes = manifest.text, manifest.outcomes
    named = {  # every field that names a file of the bundle; the artifact's are `_artifact`'s
        "golden": manifest.golden,
        "golden_texts": manifest.golden_texts,
        "record": manifest.record,
        "agreement": manifest.agreement,
        "text.tokenizer": None if text is None else text.tokenizer,
        "outcomes.file": None if outcomes is None else outcomes.file,
    }
    for key, field in named.items():
        if field is not None:
            yield from _listed(manifest, key, field, MOST_BYTES.get(key, MOST_MODEL_BYTES))


def _listed(manifest: Manifest, key: str, name: str, most_bytes: int) -> Iterator[str]:
    if fault := name_fault(name):
        yield f"{key}: the name {name[:80]!r} {fault}"
    elif name not in manifest.files:
        yield f"{key}: {name[:80]!r} is not among the bundle's files"
    elif manifest.files[name].size_bytes > most_bytes:
        yield f"{key}: {name[:80]!r} has more than {most_bytes >> 20} MiB"


def _artifact(manifest: Manifest) -> Iterator[str]:
    artifact, model_files = manifest.artifact, manifest.model_files
    if artifact.target not in target_names():
        yield f"artifact.target {artifact.target[:40]!r} is none of {', '.join(target_names())}"
    if not artifact.target == manifest.candidate.target == artifact.toolchain.target:
        yield "artifact, candidate and toolchain are of different targets"
    if not 0 < len(artifact.files) <= MOST_FILES:
        yield f"artifact.files has {len(artifact.files)} files"
    if artifact.size_bytes < 1:
        yield "artifact.files are empty"
    if len(model_files) != len(artifact.files):
        yield "artifact.files names a file twice"
    for name, compiled in model_files.items():
        yield from _listed(manifest, "artifact.files", name, MOST_MODEL_BYTES)
        listed = manifest.files.get(name)
        if listed is not None and (listed.sha256, listed.size_bytes) != (compiled.sha256, compiled.size_bytes):
            yield f"artifact.files: sha256 or size of {name[:80]!r} are not those of the bundle's file"
        for key in ("batch", "sequence_bin"):
            yield from _between(f"artifact.files: {key}", getattr(compiled, key), 1, MOST_LENGTH)
    if artifact.target in target_names():
        for name in described(artifact.target).required_files:
            if name not in {file.file for file in artifact.files}:
                yield f"artifact.files lacks {name}, without which compiled files cannot be fed"


def _numbers(manifest: Manifest) -> Iterator[str]:
    serving, service, tolerance = manifest.candidate.serving, manifest.service, manifest.tolerance
    checks: list[tuple[str, float | None, float, float]] = [
        ("golden_batches", manifest.golden_batches, 1, MOST_GOLDEN),
        ("tolerance.absolute", tolerance.absolute, 0, 1e30),
        ("tolerance.relative", tolerance.relative, 0, MOST_RELATIVE),
        ("service.max_batch_size", service.max_batch_size, 1, MOST_BATCH),
        ("service.workers", service.workers, 1, MOST_WORKERS),
        ("candidate.serving.batch", serving.batch, 1, MOST_BATCH),
        ("candidate.serving.intra_op_threads", serving.intra_op_threads, 1, MOST_THREADS),
        ("candidate.serving.streams", serving.streams, 1, MOST_THREADS),
        ("model.size_bytes", manifest.model.size_bytes, 0, MOST_MODEL_BYTES),
        ("model.opset", manifest.model.opset, 0 if manifest.task == LANGUAGE else 1, 1000),
    ]
    for name, value, low, high in checks:
        yield from _between(name, value, low, high)
    yield from _lengths("candidate.serving.sequence_bins", serving.sequence_bins or ())
    yield from _lengths("service.sequence_bins", service.sequence_bins)
    if len(manifest.axes) > MOST_INPUTS or len({axis.name for axis in manifest.axes}) != len(manifest.axes):
        yield f"{len(manifest.axes)} axes, or two of one name"
    for axis in manifest.axes:
        yield from _lengths(f"axes.{axis.name[:40]}", axis.bins)
        if list(axis.bins) != sorted(set(axis.bins)) or not abs(axis.pad) <= MOST_PAD:
            yield f"axes.{axis.name[:40]}: bins that do not ascend, or a padding beyond {MOST_PAD:g}"
    text = manifest.text
    if text is not None:
        yield from _between("text.max_length", text.max_length, 1, MOST_LENGTH)
        yield from _lengths("text.bins", text.bins)
        if service.sequence_bins not in ((), text.bins):
            yield "service.sequence_bins are other lengths than text.bins, by which texts are padded"
        if not 0 < len(text.inputs) <= MOST_INPUTS:
            yield f"text.inputs has {len(text.inputs)} inputs"
        for token_input in text.inputs:
            if token_input.dtype not in _TOKEN_TYPES:
                yield f"text.inputs: {token_input.dtype[:40]!r} is no type of token ids or masks"


def _lengths(key: str, lengths: tuple[int, ...]) -> Iterator[str]:
    if len(lengths) > MOST_BINS or any(not 1 <= length <= MOST_LENGTH for length in lengths):
        yield f"{key}: more than {MOST_BINS} lengths, or one outside 1 to {MOST_LENGTH}"


def _between(key: str, value: float | None, low: float, high: float) -> Iterator[str]:
    if value is not None and not low <= value <= high:
        yield f"{key} = {value:.4g} is outside {low:g} to {high:g}"


def _tensors(manifest: Manifest) -> Iterator[str]:
    origin = manifest.model.origin
    sources = () if origin is None else (origin.inputs, origin.outputs)
    for specs in (manifest.model.inputs, manifest.model.outputs, *sources):
        if len(specs) > MOST_INPUTS or len({spec.name for spec in specs}) != len(specs):
            yield f"the model has {len(specs)} inputs or outputs, or two of one name"
        for spec in specs:
            sizes = [size for size in spec.shape if isinstance(size, int)]
            if len(spec.shape) > MOST_RANK or any(not 0 <= size <= MOST_DIMENSION for size in sizes):
                yield f"the shape of tensor {spec.name[:40]!r} is none"
            if spec.dtype not in _TENSOR_TYPES:
                yield f"the type {spec.dtype[:40]!r} of tensor {spec.name[:40]!r} is none"
