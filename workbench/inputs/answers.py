"""Answers of another platform: which inputs it was given, and what it said, in one NPZ file without pickle.

    write_answers(path, [(text_digest(text), None, {"logits": logits[0]}), ...], source="Triton 2.47, …")
    read_answers(path).of(sample_digests(dataset, split, batch), batch.indices)

    array            type       holds
    NAME             numbers    [samples, …], an output of the model, by its name; samples whose outputs differ in size
                                are filled up behind with zeros
    sample_digests   text       [samples], `text_digest` or `feeds_digest` of each sample: what it was given
    sample_rows      integers   [samples], its row in the split's file, counted from 0
    answers_about    text       [1], a JSON object: `version` 1, `source` in words, and what else its writer knows

At least one of `sample_digests` and `sample_rows` is there. Digests find answers to other inputs than are compared;
rows alone do not, and say only which answer belongs to which sample. A file can be written with NumPy alone:

    np.savez("answers.npz", logits=logits, sample_digests=np.array([sha256 of each text's JSON, ...]))
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.dataset.sizing import ONE_SIZE
from workbench.inputs.dataset.splits import Dataset
from workbench.inputs.dataset.stored import load_array, npz_arrays
from workbench.values.documents.canonical import canonical_json, digest
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.preprocess import Array, Feeds, Text
from workbench.values.system.files import temporary_beside, writing

DIGESTS, ROWS, ABOUT = "sample_digests", "sample_rows", "answers_about"
_TEXTS = frozenset({DIGESTS, ABOUT})
_VERSION = 1
_MOST_ABOUT = 1 << 16
_DIGEST = re.compile("[0-9a-f]{64}")


Answer = tuple[str, int | None, Mapping[str, Array]]
"""What was said to one sample: its `text_digest` or `feeds_digest` ('' where only the row is known), its row in the
split's file (None where only the digest is), and name → array of this sample alone, without a batch axis."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """A file of answers.

    Attributes:
        outputs: name → array [samples, …].
        digests, rows: of each sample; empty where the file has none.
        about: what its writer said; `source` in words.
    """

    path: Path
    outputs: Mapping[str, Array]
    digests: tuple[str, ...]
    rows: tuple[int, ...]
    about: Mapping[str, Any]

    @property
    def source(self) -> str:
        """Who answered, in words."""
        return str(self.about.get("source", "")) or self.path.name

    def of(self, digests: Sequence[str], rows: IntArray) -> IntArray:
        """[n] the place of each sample's answer, -1 where there is none."""
        keys: Sequence[str | int] = self.digests or self.rows
        places = {key: at for at, key in reversed(list(enumerate(keys)))}  # of equal inputs the first answer
        asked: Sequence[str | int] = digests if self.digests else rows.tolist()
        found = np.array([places.get(key, -1) for key in asked], dtype=np.int64)
        for own, row, place in zip(digests, rows.tolist(), found, strict=True):
            if self.digests and place < 0 and row in self.rows:
                raise ConfigError(
                    f"its answer for row {row} was given to another input ({self.digests[self.rows.index(row)][:12]} "
                    f"instead of {own[:12]}).",
                    file=self.path,
                    hint="Record the answers of this split's own samples.",
                )
        return found


def text_digest(text: Text) -> str:
    """sha256 (64 hex) of a text, or of its list of words, as JSON without spaces (`ensure_ascii=False`)."""
    return digest(text if isinstance(text, str) else list(text))


def feeds_digest(sample: Feeds) -> str:
    """sha256 (64 hex) over one sample's inputs, without batch axis and padding: for each, by name, the line
    `NAME TYPE SHAPE` (such as `x float32 [3, 224, 224]`), a newline, and its bytes in C order, little endian."""
    found = hashlib.sha256()
    for name in sorted(sample):
        array = np.ascontiguousarray(sample[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        found.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def sample_digests(dataset: Dataset, split: Split, batch: Batch) -> tuple[str, ...]:
    """The digest of each sample of a batch that `Dataset.batches` gave, however it was padded."""
    texts = dataset.texts(split)
    if texts is not None:
        return tuple(text_digest(texts[int(row)]) for row in batch.indices)
    sizing = dataset.sizing or ONE_SIZE

    def own(place: int) -> Feeds:
        cut = {}
        for name, array in batch.feeds.items():
            ends = [
                int(batch.sizes[axis][place]) if axis is not None and axis in batch.sizes else None
                for axis in sizing.names(name, array.ndim - 1)
            ]
            cut[name] = array[place][tuple(slice(end) for end in ends)]
        return cut

    return tuple(feeds_digest(own(place)) for place in range(len(batch)))


def write_answers(path: Path, answers: Sequence[Answer], *, source: str, **about: object) -> None:
    """Write a file of answers, whole or not at all.

    Args:
        source: who answered, in words, such as 'Triton 2.47 on A100, model bert version 3'.
        about: further facts, kept as JSON.

    Raises:
        ValueError: an output has a name that the file needs.
        ToolchainError: the disk cannot be written.
    """
    digests, rows, outputs = zip(*answers, strict=True)
    arrays = {name: _stacked([each[name] for each in outputs]) for name in sorted(outputs[0])}
    if taken := {DIGESTS, ROWS, ABOUT} & set(arrays):
        raise ValueError(f"an output cannot be called {sorted(taken)[0]!r} in a file of answers")
    if all(digests):
        arrays[DIGESTS] = np.array(digests)
    if None not in rows:
        arrays[ROWS] = np.array(rows, dtype=np.int64)
    arrays[ABOUT] = np.array([canonical_json({"version": _VERSION, "source": source, **about})])
    with writing(path, "Choose another folder."):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(path) as draft, draft.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)


def read_answers(path: Path) -> Answers:
    """Read what `write_answers`, or NumPy, wrote; outputs are mapped where they lie, unless compressed.

    Raises:
        ConfigError: no such file, none of this form, or beyond the bounds of data files.
    """
    stored = npz_arrays(path, texts=_TEXTS)
    counts = {name: array.shape[0] for name, array in stored.items() if name != ABOUT}
    outputs = {name: load_array(array) for name, array in stored.items() if name not in (DIGESTS, ROWS, ABOUT)}
    if not outputs or len(set(counts.values())) != 1 or 0 in counts.values():
        raise ConfigError(
            f"holds no answers: {', '.join(f'{n}: {c}' for n, c in sorted(counts.items())) or 'it is empty'}.",
            file=path,
            hint="Write one array [samples, …] for each output, and sample_digests or sample_rows beside them.",
        )
    digests = tuple(str(own) for own in load_array(stored[DIGESTS]).tolist()) if DIGESTS in stored else ()
    rows = tuple(load_array(stored[ROWS]).tolist()) if ROWS in stored else ()
    if not all(_DIGEST.fullmatch(own) for own in digests):
        raise ConfigError(
            "an entry is no sha256 in 64 small hexadecimal digits.", file=path, key=DIGESTS, hint=text_digest.__doc__
        )
    if rows and not (stored[ROWS].shape == (len(rows),) and np.dtype(stored[ROWS].dtype).kind in "iu"):
        raise ConfigError("row numbers are whole numbers, one for each sample.", file=path, key=ROWS)
    if not digests and not rows:
        raise ConfigError(
            "does not say which answer belongs to which sample.",
            file=path,
            hint=f"Add {DIGESTS} (sha256 of each text's JSON) or {ROWS} (its row in the split's file).",
        )
    about: Any = {"version": _VERSION}
    if ABOUT in stored:
        if stored[ABOUT].shape != (1,) or stored[ABOUT].size_bytes > _MOST_ABOUT:
            raise ConfigError(f"is not one text of at most {_MOST_ABOUT} bytes.", file=path, key=ABOUT)
        try:
            about = loads(str(load_array(stored[ABOUT])[0]))
        except JsonError as error:
            raise ConfigError(f"is no JSON: {error}.", file=path, key=ABOUT) from error
    if not isinstance(about, dict) or about.get("version") != _VERSION:
        raise ConfigError(f"is no JSON object with version {_VERSION}.", file=path, key=ABOUT)
    return Answers(path=path, outputs=outputs, digests=digests, rows=rows, about=about)


def _stacked(arrays: Sequence[Array]) -> Array:
    largest = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    made = np.zeros((len(arrays), *largest), dtype=arrays[0].dtype)
    for place, array in enumerate(arrays):
        made[place][tuple(slice(size) for size in array.shape)] = array
    return made
