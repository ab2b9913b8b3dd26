"""CSV and JSONL rows of text with their labels.

Rows are held as text and become tokens batch by batch. Every row is checked when the file is read, so that a bad
one is known, with its line, before any work.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, IntArray
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.input_files import open_lines
from workbench.values.documents.json_reader import parse_json
from workbench.values.errors import ConfigError, nearest
from workbench.values.preprocess import Encoded, Preprocessor, Text, collate, encode

MOST_BYTES = 1 << 33
"""Of a file: ten million rows of eight hundred bytes. All of its texts are held in memory."""
MOST_COLUMNS = 4096
MOST_BLANK = 0.1
_INDEX_DIGITS = 9

Record = tuple[int, Mapping[str, Any]]
"""(line in the file, counted from 1; column → value)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRows:
    """Texts and their targets, in file order.

    Attributes:
        texts: a text, or a tuple of words where labels are tags.
        labels: class id, one tag id per word, or what a metric looks at (`truths`), of any kind; None without.
    """

    sequential: ClassVar = False
    path: Path
    sha256: str
    preprocessor: Preprocessor
    texts: tuple[Text, ...] = field(repr=False)
    labels: tuple[Any, ...] | None = field(repr=False)
    truths: bool = False

    @property
    def size(self) -> int:
        return len(self.texts)

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        preprocessor = self.preprocessor
        if length is not None:
            preprocessor = replace(preprocessor, max_length=length, bins=(length,))
        for rows in groups:
            encoded = encode(preprocessor, (self.texts[row] for row in rows))
            feeds = collate(preprocessor, encoded)
            width = next(iter(feeds.values())).shape[1]
            lengths = np.array([len(e.ids) for e in encoded])
            labels = None if self.labels is None else tuple(self.labels[row] for row in rows)
            yield Batch(
                feeds=feeds,
                targets=None if self.truths or labels is None else _targets(labels, encoded, width),
                indices=rows,
                valid=np.arange(width) < lengths[:, None],
                truths=labels if self.truths else None,
            )

    def lengths(self, rows: IntArray) -> IntArray:
        """Tokens of each row, special tokens included, cut to `max_length`."""
        found = (len(encode(self.preprocessor, (self.texts[row],))[0].ids) for row in rows)
        return np.fromiter(found, dtype=np.int64, count=len(rows))


def _targets(labels: Sequence[Any], encoded: Sequence[Encoded], width: int) -> IntArray:
    if isinstance(labels[0], int):
        return np.array(labels, dtype=np.int64)
    tags = np.full((len(labels), width), NOT_SCORED, dtype=np.int64)
    for row, (item, word_tags) in enumerate(zip(encoded, labels, strict=True)):
        previous = -1
        for position, word in enumerate(item.words):
            if word not in (-1, previous):
                tags[row, position] = word_tags[word]
                previous = word
    return tags


def read_texts(
    path: Path,
    preprocessor: Preprocessor,
    *,
    text: str,
    label: str | None,
    labels: Sequence[str],
    words: bool,
    truths: bool = False,
) -> TextRows:
    """Read and check a whole CSV or JSONL file.

    Args:
        text: column of the text, or of the list of words.
        label: column of the class, or of the list of tags; None to read no labels.
        labels: names; index = class or tag id. A label may also be written as its index.
        words: rows are lists of words with one tag each (JSONL only).
        truths: labels are of any kind, and taken as they stand.
    """
    ids = {name: index for index, name in enumerate(labels)}
    texts: list[Text] = []
    targets: list[Any] = []
    blank: list[int] = []
    for line, record in records(path, text, label):
        at = (path, line)
        written = tuple(_text(at, text, item) for item in _items(at, text, record)) if words else None
        plain = _text(at, text, record[text]) if written is None else ""
        texts.append(plain if written is None else written)
        if not any(map(str.strip, written or (plain,))):
            blank.append(line)
        if label is None:
            continue
        if truths or written is None:
            targets.append(record[label] if truths else _label(at, record[label], ids))
            continue
        tags = _items(at, label, record)
        if len(tags) != len(written):
            rule = f"{len(written)} in {text!r} but {len(tags)} in {label!r}."
            raise ConfigError(rule, file=path, line=line, hint="Give each token one tag.")
        targets.append(tuple(_label(at, tag, ids) for tag in tags))
    if not texts:
        raise ConfigError("has no rows.", file=path, hint="A split needs at least one sample.")
    if len(blank) > MOST_BLANK * len(texts):
        raise ConfigError(
            f"{len(blank)} of {len(texts)} texts of column {text!r} are blank, this one first; scores of nothing mean "
            f"nothing, and {MOST_BLANK:.0%} may be.",
            file=path,
            line=blank[0],
            hint="Name the column that holds the texts, or take these rows out.",
        )
    return TextRows(
        path=path,
        sha256=file_digest(path),
        preprocessor=preprocessor,
        texts=tuple(texts),
        labels=tuple(targets) if label is not None else None,
        truths=truths,
    )


def read_column(path: Path, column: str) -> tuple[str, ...]:
    """The texts of one column of a CSV or JSONL file; a list of tokens becomes one text, as it was before."""
    found = []
    for line, record in records(path, column):
        value, at = record[column], (path, line)
        parts = _items(at, column, record) if isinstance(value, list) else [value]
        found.append("".join(_text(at, column, part) for part in parts))
    if not found:
        raise ConfigError("has no rows.", file=path)
    return tuple(found)


def _text(at: tuple[Path, int], column: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{column!r} must be a text, got {value!r}.", file=at[0], line=at[1])
    return value


def _items(at: tuple[Path, int], column: str, record: Mapping[str, Any]) -> list[Any]:
    value = record[column]
    if not isinstance(value, list) or not value:
        rule = f"{column!r} must be a list with at least one item, got {value!r}."
        raise ConfigError(rule, file=at[0], line=at[1])
    return value


def _label(at: tuple[Path, int], value: object, ids: Mapping[str, int]) -> int:
    if isinstance(value, str) and value in ids:
        return ids[value]
    index = value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _INDEX_DIGITS:
        index = int(value)
    if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(ids):
        return index
    raise ConfigError(f"unknown label {value!r}.", file=at[0], line=at[1], hint=nearest(str(value), ids))


def records(path: Path, *columns: str | None) -> Iterator[Record]:
    """Records of a CSV, TSV or JSONL file, each of which has all `columns`; of a TXT file a line each, as 'text'."""
    names = [c for c in columns if c is not None]
    csv_file = path.suffix in (".csv", ".tsv")
    # JSON may hold a carriage return as white space, and a quoted CSV field any line end
    with open_lines(path, limit_bytes=MOST_BYTES, newline="" if csv_file else "\n") as lines:
        if path.suffix == ".txt":
            yield from ((line, {"text": said}) for line, text in enumerate(lines, 1) if (said := text.strip()))
        else:
            yield from (_csv_records if csv_file else _json_records)(path, lines, names)


def _csv_records(path: Path, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Record]:
    reader = csv.reader(lines, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
    try:
        header = next(reader, [])
        if len(header) > MOST_COLUMNS:
            raise ConfigError(f"{len(header)} columns are more than {MOST_COLUMNS}.", file=path, line=1)
        for column in columns:
            if column not in header:
                raise ConfigError(f"no column {column!r}.", file=path, line=1, hint=nearest(column, header))
        line = reader.line_num + 1
        for values in reader:
            if values and len(values) != len(header):
                rule = f"{len(values)} fields, but the header has {len(header)}."
                raise ConfigError(rule, file=path, line=line, hint="Put quotes around a text with commas in it.")
            if values:
                yield line, dict(zip(header, values, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "Is a quote missing?" if "field larger" in str(error) else None
        raise ConfigError(f"not valid CSV: {error}.", file=path, line=reader.line_num, hint=hint) from error


def _json_records(path: Path, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Record]:
    for line, written in enumerate(lines, start=1):
        if not written.strip():
            continue
        record = parse_json(written, file=path, line=line)
        if not isinstance(record, dict):
            raise ConfigError("expected a JSON object on each line.", file=path, line=line)
        for column in columns:
            if column not in record:
                raise ConfigError(f"no {column!r} in this row.", file=path, line=line, hint=nearest(column, record))
        yield line, record
