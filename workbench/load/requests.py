"""Request bodies from what the user has: a split of a dataset, a file of texts, a bundle's golden samples.

Only the contract of POST /predict is known here: {"text": …}, {"words": […]} or {"inputs": {name: [[…]]}}, one sample
a request unless several are wanted ({"texts": […]}, more rows of inputs). Other protocols: `workbench.load.kserve`.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.preprocess import Preprocessor, Text, encoder

if TYPE_CHECKING:  # types only: the clients' process imports this package too, and must start quickly
    from workbench.bundle.opened import Bundle
    from workbench.inputs.dataset import Dataset
    from workbench.values.model import Model
    from workbench.values.preprocess import Feeds, Text

_MOST_BYTES = 1 << 33
_MOST_STEPS = 256
MOST_BODIES = 10_000
"""Texts beyond this many are not sent; they are drawn from the split's own order, which is shuffled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent, of whatever protocol.

    Attributes:
        headers: of HTTP, beside those that every request has.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def bodies_of_texts(texts: Sequence[Text], batch: int = 1) -> list[str]:
    """Bodies with `batch` texts each; what is left over is not sent. A list of words goes as words."""
    sent = [text if isinstance(text, str) else list(text) for text in texts]
    asked: list[dict[str, object]]
    if batch == 1:
        asked = [{"text" if isinstance(text, str) else "words": text} for text in sent]
    else:
        asked = [{"texts": sent[start : start + batch]} for start in range(0, len(sent) - batch + 1, batch)]
    return [json.dumps(one, ensure_ascii=False) for one in asked]


def bodies_of_feeds(feeds: Feeds) -> list[str]:
    """One body for each row of arrays."""
    rows = min(len(array) for array in feeds.values())
    return [
        json.dumps({"inputs": {name: np.asarray(array)[row : row + 1].tolist() for name, array in feeds.items()}})
        for row in range(rows)
    ]


def npz_bodies(samples: Iterable[Feeds]) -> list[Request]:
    """Of a pipeline, whose service takes arrays as an NPZ file: one for each sample, which has no batch axis."""
    found = []
    for sample in samples:
        stream = io.BytesIO()
        np.savez(stream, **{name: array[None] for name, array in sample.items()})  # type: ignore[arg-type]  # by name
        found.append(Request(body=stream.getvalue(), headers={"Content-Type": "application/x-npz"}))
    return found


def bodies_of_dataset(
    dataset: Dataset, split: Split = "validation", *, most: int = MOST_BODIES, model: Model | None = None
) -> list[str]:
    """Bodies of the first samples of a split's shuffled order, so their lengths are spread as the data's are; single
    steps where a state is carried.

    Args:
        model: the float model, whose states such steps have.

    Raises:
        ConfigError: a state is carried and there is no model.
    """
    if dataset.interface.state:
        from workbench.evaluation.carried import timed_feeds

        if model is None:
            raise ConfigError(
                "a request is one step with its state, which only the float model tells.",
                file=dataset.path,
                key="state",
                hint="Name the --experiment, or neither: then the bundle's golden samples are sent.",
            )
        steps = timed_feeds(dataset, model, split, count=min(most, _MOST_STEPS), batch=1, seed=0)
        return [body for one in steps for body in bodies_of_feeds(one)]
    texts = dataset.texts(split)
    count = min(most, dataset.size(split))
    if texts is not None:
        return bodies_of_texts([texts[int(row)] for row in dataset.split(split).rows()[:count]])
    return [body for batch in dataset.batches(split, 16, stop=count) for body in bodies_of_feeds(batch.feeds)]


def bodies_of_bundle(bundle: Bundle) -> list[str]:
    """Bodies of the golden samples: their texts where it has them, else their arrays. Few, but always there."""
    from workbench.bundle.golden import golden_batches

    bodies: list[str] = []
    for batch in golden_batches(bundle):
        bodies += bodies_of_texts(batch.texts) if batch.texts else bodies_of_feeds(batch.feeds)
    return bodies


def bodies_of_file(path: Path) -> list[str]:
    """Bodies of a file: JSON lines (requests as they are, or an object with a text), CSV with a column text, or one
    text a line.

    Raises:
        ConfigError: missing, empty, or a line that is none of these.
    """
    csv_file = path.suffix == ".csv"
    with open_lines(path, limit_bytes=_MOST_BYTES, newline="" if csv_file else "\n") as lines:
        if path.suffix in (".jsonl", ".json"):
            found = (_json_body(line, path, number) for number, line in enumerate(lines, 1) if line.strip())
            bodies = list(itertools.islice(found, MOST_BODIES))
        elif csv_file:
            bodies = bodies_of_texts(list(itertools.islice(_rows(lines, path), MOST_BODIES)))
        else:
            texts = (text for line in lines if (text := line.rstrip("\r\n")).strip())
            bodies = bodies_of_texts(list(itertools.islice(texts, MOST_BODIES)))
    if not bodies:
        raise ConfigError("holds no request.", file=path, key="--data")
    return bodies


def _rows(lines: Iterable[str], path: Path) -> Iterator[str]:
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            if (text := row.get("text")) is None:
                hint = "Or name --experiment."
                raise ConfigError("has no column 'text'.", file=path, line=reader.line_num, key="--data", hint=hint)
            yield text
    except csv.Error as error:
        raise ConfigError(f"not valid CSV: {error}.", file=path, line=reader.line_num, key="--data") from error


def _json_body(line: str, path: Path, number: int) -> str:
    hint = 'Write {"text": "…"}, {"words": ["…"]} or {"inputs": {…}}.'
    try:
        value = loads(line)
    except JsonError as error:
        raise ConfigError(f"no JSON: {error}.", file=path, line=number, key="--data", hint=hint) from error
    if isinstance(value, str):
        return json.dumps({"text": value}, ensure_ascii=False)
    if isinstance(value, dict):
        for key in ("text", "words", "inputs"):
            if key in value:
                return json.dumps({key: value[key]}, ensure_ascii=False)
    raise ConfigError("no request.", file=path, line=number, key="--data", hint=hint)


def texts_of_length(preprocessor: Preprocessor, texts: Sequence[Text], length: int, count: int) -> list[Text]:
    """`count` texts, fewer where joined ones seldom come out right; each begins at another one of `texts`.

    Every one has `length` tokens, special tokens included, by this very tokenizer. Deterministic.

    Raises:
        ConfigError: the model takes no such length, or no text comes out right.
    """
    if not 1 <= length <= preprocessor.max_length:
        raise ConfigError(
            f"{length} tokens are outside 1 to {preprocessor.max_length}, the max_length of the dataset.",
            key="--length",
            hint="Choose a shorter length, or raise max_length where the model allows it.",
        )
    if not texts:
        raise ConfigError("there are no texts.", key="--length")
    whole = encoder(preprocessor)
    cutting = encoder(replace(preprocessor, max_length=length, bins=(length,)))
    found: list[Text] = []
    for first in range(min(count, len(texts))):
        joined: Text = texts[first]
        for further in range(1, length + 1):
            if len(cutting(joined)[0].ids) == length:
                break
            joined = _joined(joined, texts[(first + further) % len(texts)])
        encoded, tokens = cutting(joined)
        if isinstance(joined, str):
            cut: Text = joined[: max((end for _, end in tokens.offsets), default=0)]
        else:
            cut = tuple(joined[: max(encoded.words, default=-1) + 1])
        if len(whole(cut)[0].ids) == length:
            found.append(cut)
    if not found:
        raise ConfigError(
            f"no text of exactly {length} tokens could be made of {len(texts)}.",
            key="--length",
            hint="Words may have more tokens than one, and some lengths cannot be met: choose another one.",
        )
    return found


def _joined(one: Text, other: Text) -> Text:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one} {other}"
    return (*one, *other)
