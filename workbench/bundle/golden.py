"""Golden samples: batches with the outputs that the exported artifact gave for them, and the texts they came from.

They lie in NPZ files: arrays of numbers, each as large as its header says, all within a bound. NumPy's own reader
allocates what a header of a hundred bytes asks for, and unpacks whatever a kilobyte holds.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import IO

import numpy as np

from workbench.bundle.bounds import LANGUAGE, absolute_fault, json_object
from workbench.bundle.manifest import Manifest
from workbench.bundle.opened import Bundle
from workbench.targets.base import Array, Feeds
from workbench.values.agreement import Agreements
from workbench.values.documents.canonical import decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import BundleError, ConfigError
from workbench.values.preprocess import Preprocessor, Text, open_preprocessor


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenBatch:
    """One batch and what the exported artifact gave for it.

    Attributes:
        texts: what the feeds were made from, row by row; empty when the data are not text.
    """

    feeds: Feeds
    outputs: Mapping[str, Array]
    texts: tuple[Text, ...] = ()


def preprocessor_of(bundle: Bundle) -> Preprocessor | None:
    """The preprocessor that calibration and scoring used, over the bundle's own tokenizer; None without text.

    Raises:
        BundleError: the tokenizer is none, or does not fit the settings.
    """
    text = bundle.manifest.text
    if text is None:
        return None
    path = bundle.file(text.tokenizer)
    try:
        found = open_preprocessor(path, max_length=text.max_length, bins=text.bins, inputs=text.inputs)
    except ConfigError as error:
        raise BundleError(f"{bundle.directory}: its texts cannot be read: {error}") from error
    if found.tokenizer_sha256 != bundle.manifest.files[text.tokenizer].sha256:
        raise BundleError(f"{bundle.directory}: {text.tokenizer} changed while it was opened. Copy the bundle again.")
    return found


def golden_batches(bundle: Bundle) -> tuple[GoldenBatch, ...]:
    """The golden samples as they were written.

    Raises:
        BundleError: the files do not hold what the manifest says.
    """
    manifest = bundle.manifest
    if manifest.task == LANGUAGE:
        raise BundleError(f"{bundle.directory}: it holds a language model: prompts, and no samples.")
    count = manifest.golden_batches
    arrays: dict[str, list[dict[str, Array]]] = {role: [{} for _ in range(count)] for role in ("feeds", "outputs")}
    texts: tuple[tuple[Text, ...], ...] = ((),) * count
    try:
        for key, array in read_npz(bundle.read(manifest.golden)).items():
            index, role, name = key.split("/", 2)
            if not (index.isascii() and index.isdigit() and int(index) < count):
                raise ValueError(f"there is a batch {index[:20]!r}, of {count}")
            arrays[role][int(index)][name] = array
        if manifest.golden_texts is not None:
            texts = decode(
                tuple[tuple[str | tuple[str, ...], ...], ...], loads(bundle.read(manifest.golden_texts)), "texts"
            )
            if len(texts) != count:
                raise ValueError(f"their texts are of {len(texts)} batches, not of {count}")
        found = [
            GoldenBatch(feeds=feeds, outputs=outputs, texts=rows)
            for feeds, outputs, rows in zip(arrays["feeds"], arrays["outputs"], texts, strict=True)
        ]
        for batch in found:
            _check(batch)
            if manifest.task != "tensors":
                _check_labels(batch, manifest)
        values = (array.astype(np.float64) for batch in found for array in batch.outputs.values())
        largest = max(float(np.abs(array).max(initial=0.0)) for array in values)
        if fault := absolute_fault(manifest.tolerance.absolute, largest):
            raise ValueError(fault)
    except (ValueError, KeyError) as error:
        raise BundleError(f"{bundle.directory}: the golden samples cannot be used: {error}.") from error
    return tuple(found)


def scored_output(names: Collection[str]) -> str:
    """The output that holds the scores, by the rule of `workbench.inputs.metrics.score`; ValueError where none does."""
    if "logits" not in names and len(names) != 1:
        raise ValueError(f"none of the outputs {', '.join(names)} is named 'logits'; the scores cannot be found")
    return "logits" if "logits" in names else next(iter(names))


def _check(batch: GoldenBatch) -> None:
    rows = {len(array) if array.ndim else 0 for array in batch.feeds.values()}
    if len(rows) != 1 or 0 in rows or not batch.outputs:
        raise ValueError("a batch has no rows, or inputs of different numbers of them, or no outputs")
    if batch.texts and len(batch.texts) != next(iter(rows)):
        raise ValueError(f"{len(batch.texts)} texts stand for {next(iter(rows))} rows")
    if not all(array.dtype.kind in "fiub" for array in (*batch.feeds.values(), *batch.outputs.values())):
        raise ValueError("an array holds no numbers")
    if not all(np.isfinite(array).all() for array in batch.outputs.values()):
        raise ValueError("an output is not finite")


def _check_labels(batch: GoldenBatch, manifest: Manifest) -> None:
    """A service names the classes of every answer by these labels, so there is one for each."""
    name, labels = scored_output(batch.outputs), manifest.labels
    shape, rank = batch.outputs[name].shape, 3 if manifest.task == "ner" else 2
    if len(shape) != rank or not shape[-1]:
        raise ValueError(f"output {name!r} has the shape {shape}; the task {manifest.task} takes one of {rank} axes")
    if (labels or rank == 3) and len(labels) != shape[-1]:
        raise ValueError(f"the manifest names {len(labels)} labels, and output {name!r} has {shape[-1]} classes")


def bundle_agreement(bundle: Bundle) -> Agreements | None:
    """None where nobody measured it before it was exported.

    Raises:
        BundleError: the file is damaged, holds none, or that of another candidate.
    """
    name = bundle.manifest.agreement
    if name is None:
        return None
    try:
        found = decode(Agreements, json_object(bundle.read(name), name), "agreement", version=1)
    except ValueError as error:
        raise BundleError(f"{bundle.directory}: {name} cannot be used: {error}.") from error
    if found.candidate_id != bundle.manifest.candidate_id:
        raise BundleError(
            f"{bundle.directory}: {name} is of the candidate {found.candidate_id[:12]!r}, not of its own."
        )
    return found


MOST_BYTES, MOST_ARRAYS = 1 << 30, 1 << 16
"""Of all arrays together, unpacked."""
_MOST_RANK = 32


def read_npz(content: bytes, *, most_bytes: int = MOST_BYTES) -> dict[str, Array]:
    """Name → array. Texts of fixed length are arrays too; objects are not, so nothing is unpickled.

    Raises:
        ValueError: no NPZ file, damaged, or beyond a bound; says which.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if len(members) > MOST_ARRAYS or total > most_bytes:
                raise ValueError(f"{len(members)} arrays of {total >> 20} MiB are more than a bundle holds")
            found: dict[str, Array] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"array {name[:80]!r} is in it twice")
                with archive.open(member) as stream:
                    found[name] = _array(stream, name, member.file_size)
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"no file of arrays: {error}") from error


def _array(stream: IO[bytes], name: str, size: int) -> Array:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"array {name[:80]!r} has a header of version {version}")
    shape, in_columns, dtype = readers[version](stream)
    if dtype.hasobject or dtype.kind not in "fiubcU" or len(shape) > _MOST_RANK or any(length < 0 for length in shape):
        raise ValueError(f"array {name[:80]!r} has the type {str(dtype)[:40]}, shape {shape[:4]}")
    body = stream.read()
    if dtype.itemsize * math.prod(shape) != len(body) or stream.tell() != size:
        raise ValueError(f"array {name[:80]!r} is not as large as its header says")
    flat = np.frombuffer(body, dtype=dtype) if len(body) else np.empty(0, dtype=dtype)
    return flat.reshape(shape, order="F" if in_columns else "C")
