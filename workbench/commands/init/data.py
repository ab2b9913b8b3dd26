"""Looking at the data: which file is for what, which columns hold what, the labels, how long the texts and how large
the samples are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.commands.init.meanings import LABEL_COLUMNS, LABELS, RANK_OF_TAGS, labels_of, match
from workbench.commands.init.retrieval import WORDS, Searched, searched
from workbench.inputs.dataset import Task, read_column
from workbench.inputs.dataset.arrays import read_arrays
from workbench.inputs.dataset.batch import IntArray
from workbench.inputs.dataset.loader import read_loader
from workbench.inputs.dataset.stored import load_array, npz_arrays
from workbench.inputs.dataset.text import MOST_BYTES, read_texts, records
from workbench.inputs.metrics import scored_output
from workbench.user_code import read_code
from workbench.values.bins import optimal_bins
from workbench.values.documents.input_files import check_file, open_lines, read_text
from workbench.values.documents.json_reader import parse_json
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.preprocess import open_preprocessor

TEXT_COLUMNS = ("text", "sentence", "content", "query", "question", "utterance", "review", "document", "title")
TOKEN_COLUMNS = ("tokens", "words", "chars", "characters", "text")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "label", "bio")
"""Names looked for, the likeliest first; upper and lower case are the same."""

_LONGEST_MEASURED = 1 << 16
_MEASURED_TEXTS = 20_000
_MOST_CONFIG_BYTES = 1 << 24
_CLASS_DIGITS = 6
"""Of an index: a larger number is a name of another system, and no class of a model."""
_LABELS_HINT = (
    "Write them as a JSON list in the order of the model's outputs (`id2label` in the checkpoint's config.json) "
    "and give it with --labels: in a wrong order every accuracy would be wrong."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What was found out about the data.

    Attributes:
        columns: keys and values of the manifest's `columns`.
        labels: a file, or the names themselves where classes are numbered or config.json tells them; None where none
            are needed.
        lengths: tokens of the measured texts, ascending; empty for arrays.
        arrays: input → shape of its array, samples first; None where the data are no arrays.
        sizes: input → true sizes of its samples along their first axes [n, k], where they differ.
        loader: `file.py` and function, in the place of files.
        truths: there may be labels of any kind, that outputs are held against or a metric reads.
        searched: texts are queries of documents; None where nothing is searched.
    """

    task: Task
    files: Mapping[Split, Path]
    columns: Mapping[str, str]
    labels: Path | tuple[str, ...] | None
    tokenizer: Path | None = None
    lengths: tuple[int, ...] = ()
    arrays: Mapping[str, tuple[int, ...]] | None = None
    sizes: Mapping[str, IntArray] = field(default_factory=dict)
    loader: tuple[Path, str] | None = None
    truths: bool = False
    searched: Searched | None = None


def examine_data(
    data: Sequence[Path],
    model: Model,
    *,
    tokenizer: Path | None,
    labels: Path | None,
    metric: bool = False,
    held: bool = False,
) -> Corpus:
    """Find out splits, columns, task and lengths.

    Args:
        metric: arrays of labels are for a metric of the user's to read, whatever they hold.
        held: the user says that an output is held against them.
    """
    if len(data) == 1:
        file, colon, function = str(data[0]).rpartition(":")
        if colon and file.endswith(".py"):
            hint = "`workbench init MODEL --loader-template loader.py` writes one to be filled in."
            check_file(Path(file), key="--data", hint=hint)
            return _examine_loader(Path(file), function, labels)
    apart = {key: path for path in data if (key := _sought(path)) is not None}
    files = assign_splits([path for path in data if path not in apart.values()])
    for key, path in (("--tokenizer", tokenizer), ("--labels", labels)):
        if path is not None:
            check_file(path, key=key)
    kinds = {KINDS[path.suffix] for path in files.values()}
    if len(kinds) > 1:
        raise _unusable("text and arrays cannot be mixed.", "Give files of one kind.")
    if kinds == {"text"}:
        return _examine_texts(files, model, tokenizer, labels, apart)
    if apart:
        raise _unusable("a corpus is searched by texts, and these data are none.", "Give queries as CSV or JSONL.")
    if tokenizer is not None:
        raise ConfigError("arrays need no tokenizer.", key="--tokenizer", hint="Leave it out.")
    return _examine_arrays(files, model, labels, metric=metric, held=held)


def _unusable(rule: str, hint: str | None = None, *, file: Path | None = None) -> ConfigError:
    return ConfigError(rule, file=file, key="--data", hint=hint)


def _examine_loader(file: Path, function: str, labels: Path | None) -> Corpus:
    code = read_code(file, function, key="loader")
    read = {split: read_loader(code, split, task="tensors") for split in get_args(Split)}
    found: dict[str, list[tuple[int, ...]]] = {}
    samples = 0
    for rows in (rows for rows in read.values() if rows is not None):
        samples += rows.size
        for kind in rows.kind_of:
            for name, shape in rows.kinds[kind]:
                found.setdefault(name, []).append(shape)
    differing = {name: shapes for name, shapes in found.items() if len(set(shapes)) > 1}
    return Corpus(
        task="tensors" if labels is None else "classification",
        files={},
        columns={},
        labels=labels,
        arrays={name: (samples, *shapes[0]) for name, shapes in found.items()},
        sizes={name: np.array(shapes) for name, shapes in differing.items() if len({len(one) for one in shapes}) == 1},
        loader=(file, function),
        truths=labels is None,
    )


def _examine_arrays(
    files: Mapping[Split, Path], model: Model, labels: Path | None, *, metric: bool, held: bool
) -> Corpus:
    first = files["calibration"]
    inputs = {spec.name for spec in model.inputs}
    splits = sorted(files, key=lambda split: split != "calibration")
    found = labels_of([files[split] for split in splits], inputs, free=metric or held)
    name, rank = found or (LABELS, None)
    task: Task = "tensors" if rank is None else "ner" if rank == RANK_OF_TAGS else "classification"
    if labels is not None and task == "tensors":
        if metric or found is not None:
            other = "a metric of arrays" if metric else f"an array {name!r} that holds no class ids"
            raise ConfigError(f"means nothing beside {other}.", key="--labels", hint="Leave one of them out.")
        raise _no_label_column(first, npz_arrays(first))
    if task == "ner" and labels is None:
        raise ConfigError(
            f"array {name!r} holds a tag per position, and only the model's training knows what the ids mean.",
            key="--labels",
            hint=_LABELS_HINT + " Where they are no tags: --output NAME=MEANING:against=labels.",
        )
    truths = task == "tensors" and found is not None
    label = name if truths else None
    rows = [read_arrays(path, label=label, classes=None, tags=False, truths=truths) for path in files.values()]
    sizes: dict[str, list[IntArray]] = {}
    for input_name, array in (item for each in rows for item in each.sizes if item[0] in inputs):
        values = np.asarray(load_array(array), dtype=np.int64)
        sizes.setdefault(input_name, []).append(values.reshape(len(values), -1))
    return Corpus(
        task=task,
        files=files,
        columns={} if found is None or (name == LABELS and task == "tensors") else {"label": name},
        labels=labels,
        arrays={n: array.shape for n, array in rows[0].inputs if found is None or n != name},
        sizes={n: np.concatenate(parts) for n, parts in sizes.items()},
        truths=truths,
    )


def _sought(path: Path) -> str | None:
    """The key of `retrieval:` that a file's name says; a split's word beside it decides otherwise."""
    if any(_has_word(path, words) for words in (*_WORDS_OF_SPLITS.values(), ("test",))):
        return None
    return next((key for key, words in WORDS.items() if _has_word(path, words)), None)


def _examine_texts(
    files: Mapping[Split, Path],
    model: Model,
    tokenizer: Path | None,
    labels: Path | None,
    apart: Mapping[str, Path],
) -> Corpus:
    first = files["calibration"]
    record = _first_record(first)
    lists = [column for column, value in record.items() if isinstance(value, list)]
    text = match(lists, TOKEN_COLUMNS)
    words = text is not None
    text = text or match(record.keys() - set(lists), TEXT_COLUMNS)
    floats = any(spec.dtype.startswith("float") for spec in model.inputs)
    if text is None and floats and not lists and all(map(_is_number, record.values())):
        raise _table_of_numbers(first, record, model)
    if text is None:
        raise _unusable(
            f"none of its columns ({', '.join(record)}) is known to hold the text.",
            "Call it 'text', or 'tokens' where it is a list.",
            file=first,
        )
    label = match([c for c in (lists if words else record) if c != text], TAG_COLUMNS if words else LABEL_COLUMNS)
    if words and label is None:
        raise _unusable(
            f"no list of tags beside {text!r} (its columns are {', '.join(record)}).", "Call it 'tags'.", file=first
        )
    tokenizer = tokenizer or _beside(model, "tokenizer.json")
    if tokenizer is None:
        raise ConfigError(
            f"{first.name} holds texts, which need the model's tokenizer, and no tokenizer.json lies beside the model.",
            key="--tokenizer",
            hint="Give its tokenizer.json (`tokenizer.save_pretrained` of a fast tokenizer writes one).",
        )
    if label is None and labels is not None:
        raise _no_label_column(first, record)
    if apart:
        return _examine_retrieval(files, model, tokenizer, text, apart)
    task: Task = "ner" if words else "tensors" if label is None else "classification"
    lengths = _lengths(files, tokenizer, text, task)  # reads every row strictly, so `_labels` need not
    keys = ("tokens", "tags") if task == "ner" else ("text", "label")
    return Corpus(
        task=task,
        files=files,
        columns={key: column for key, column in zip(keys, (text, label), strict=True) if column is not None},
        labels=_labels(task, files, label, labels, model),
        tokenizer=tokenizer,
        lengths=lengths,
    )


def _examine_retrieval(
    files: Mapping[Split, Path], model: Model, tokenizer: Path, text: str, apart: Mapping[str, Path]
) -> Corpus:
    if "corpus" not in apart:
        rule = f"{', '.join(path.name for path in apart.values())} without documents."
        raise _unusable(rule, "Give them as well: --data corpus.jsonl.")
    for key, path in apart.items():
        check_file(path, key="--data", hint=f"It is the {key} by its name.")
    corpus = apart["corpus"]
    query, document = (next(records(path), (0, {}))[1] for path in (files["calibration"], corpus))
    content = match(document, TEXT_COLUMNS)
    if content is None:
        rule = f"none of its columns ({', '.join(document)}) is known to hold the text."
        raise _unusable(rule, "Call it 'text'.", file=corpus)
    found = searched(apart, query, document, content, model)
    lengths = (*_lengths(files, tokenizer, text, "tensors"), *_lengths({"": corpus}, tokenizer, content, "tensors"))
    return Corpus(
        task="tensors",
        files=files,
        columns={"text": text, **found.queries},
        labels=None,
        tokenizer=tokenizer,
        lengths=tuple(sorted(lengths)),
        searched=found,
    )


def _beside(model: Model, name: str) -> Path | None:
    file = model.path.parent / name
    return file if file.is_file() else None


def _names_beside(model: Model) -> Path | tuple[str, ...] | None:
    """labels.json in the model's folder, or the names in a checkpoint's config.json there (`id2label`, by index)."""
    config = _beside(model, "config.json")
    if (labels := _beside(model, "labels.json")) is not None or config is None:
        return labels
    try:
        names = json.loads(read_text(config, limit_bytes=_MOST_CONFIG_BYTES))["id2label"]
        return tuple(str(names[str(number)]) for number in range(len(names))) or None
    # another program's config.json: `init` asks for --labels then, as without one
    except (ConfigError, OSError, RecursionError, ValueError, KeyError, TypeError):
        return None


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _table_of_numbers(file: Path, columns: Iterable[str], model: Model) -> ConfigError:
    """With the lines that turn the file into arrays."""
    label = match(list(columns), LABEL_COLUMNS)
    features = [column for column in columns if column != label]
    arrays = [f"{spec.name}=t[{features}]" for spec in model.inputs[:1]]
    if len(model.inputs) > 1 and {spec.name for spec in model.inputs} <= set(features):
        arrays = [f"{spec.name}=t[['{spec.name}']]" for spec in model.inputs]
    dtype = model.inputs[0].dtype
    arrays = [f"{array}.to_numpy('{dtype}')" for array in arrays]
    arrays += [f"{LABELS}=t['{label}'].to_numpy()"] if label else []
    program = (
        f"import numpy, pandas; t = pandas.read_csv('{file.name}'); numpy.savez('{file.stem}', {', '.join(arrays)})"
    )
    return _unusable(
        "its columns are numbers, and a CSV file is read for its texts.",
        f'Write each file as arrays and give the .npz: python -c "{program}"',
        file=file,
    )


def _no_label_column(file: Path, names: Iterable[str]) -> ConfigError:
    return _unusable(
        f"--labels was given, but none of {', '.join(names)} is known to hold the label.", "Call it 'label'.", file=file
    )


def _labels(
    task: Task, files: Mapping[Split, Path], column: str | None, labels: Path | None, model: Model
) -> Path | tuple[str, ...] | None:
    """Names without a file are refused: an order that was guessed wrong would not fail, it would give an accuracy near
    zero, or worse, a plausible one."""
    if column is None or labels is not None:
        return labels
    beside = _names_beside(model)
    if task == "ner" and beside is not None:
        return beside
    if task == "ner":
        rule = "tags need their names, and only the model's training knows their order."
        raise ConfigError(rule, key="--labels", hint=_LABELS_HINT)
    values: set[str] = set()
    for path in files.values():
        if path.suffix == ".csv":
            values.update(read_column(path, column))
            continue
        with open_lines(path, limit_bytes=MOST_BYTES) as lines:
            for number, line in enumerate(lines, 1):
                record = parse_json(line, file=path, line=number) if line.strip() else None
                if isinstance(record, dict) and column in record:
                    values.add(str(record[column]))
    if not all(value.isascii() and value.isdigit() and len(value) <= _CLASS_DIGITS for value in values):
        if beside is not None and (isinstance(beside, Path) or values <= set(beside)):
            return beside
        shown = ", ".join(sorted(values)[:12]) + (", …" if len(values) > 12 else "")
        raise ConfigError(
            f"the {len(values)} labels are names ({shown}), and only the model's training knows their order.",
            key="--labels",
            hint=_LABELS_HINT,
        )
    numbers = sorted(map(int, values))
    scored = scored_output(spec.name for spec in model.outputs)
    last = next(spec.shape[-1:] for spec in model.outputs if spec.name == scored)
    classes = last[0] if last and isinstance(last[0], int) else numbers[-1] + 1
    if numbers[-1] >= classes:
        raise _unusable(
            f"the labels go from {numbers[0]} to {numbers[-1]}, but the model's classes are 0 to {classes - 1}.",
            "Write each label as the index of the model's output.",
        )
    return tuple(map(str, range(classes)))


def _lengths(files: Mapping[Any, Path], tokenizer: Path, text: str, task: Task) -> tuple[int, ...]:
    """The tokens of up to `_MEASURED_TEXTS` evenly spaced texts of each file, ascending."""
    preprocessor = open_preprocessor(tokenizer, max_length=_LONGEST_MEASURED)
    found = []
    for path in files.values():
        rows = read_texts(path, preprocessor, text=text, label=None, labels=(), words=task == "ner")
        step = -(-rows.size // _MEASURED_TEXTS)
        found.append(rows.lengths(np.arange(0, rows.size, step)))
    return tuple(np.sort(np.concatenate(found)).tolist())


def _first_record(path: Path) -> Mapping[str, Any]:
    """The first row of a file; the rest is not looked at."""
    csv_file = path.suffix == ".csv"
    with open_lines(path, limit_bytes=MOST_BYTES, newline="" if csv_file else "\n") as lines:
        if csv_file:
            try:
                header = next(csv.reader(lines), [])
                found: Any = dict.fromkeys(header, "") | dict(zip(header, next(csv.reader(lines), []), strict=False))
            except csv.Error as error:
                raise _unusable(f"not valid CSV: {error}.", file=path) from error
        else:
            found = parse_json(next((line for line in lines if line.strip()), "{}"), file=path, line=1)
    if not isinstance(found, dict) or not found:
        raise _unusable("its first line names no columns.", file=path)
    return found


_BINS = 4
_EDGES = 256
"""So many lengths are looked at as bins: a recording has ten thousands."""


FreeAxes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Axis → (bins that hold every sample, the samples' sizes, ascending)."""


def differing_axes(corpus: Corpus, model: Model, *, steps: bool = False) -> FreeAxes:
    """The named axes of the prepared model along which samples have different true sizes.

    Args:
        steps: the first axis of every sample counts steps, which are fed one by one.
    """
    found: dict[str, list[IntArray]] = {}
    shapes = {spec.name: spec.shape for spec in model.inputs}
    for name, sizes in corpus.sizes.items():
        for column, axis in zip(sizes.T[steps:], shapes.get(name, ())[1:], strict=False):
            if isinstance(axis, str):
                found.setdefault(axis, []).append(column)
    together = {axis: np.sort(np.concatenate(columns)) for axis, columns in found.items()}
    axes = {}
    for axis, sizes in together.items():
        longest = int(sizes[-1])
        step, last = max(8, -(-longest // _EDGES // 8) * 8), -(-longest // 8) * 8 if longest > 64 else longest
        if sizes[0] != longest:
            axes[axis] = (optimal_bins(sizes, _BINS, last, multiple=step), tuple(sizes.tolist()))
    return axes


def compiled_lengths(corpus: Corpus, model: Model, axes: FreeAxes, *, steps: bool = False) -> tuple[int, ...]:
    """What a target that compiles every length has to compile for arrays; empty where no axis is free."""
    bins = {length for own, _ in axes.values() for length in own}
    shapes = corpus.arrays or {}
    for spec in model.inputs:
        for size, axis in zip(shapes.get(spec.name, ())[1 + steps :], spec.shape[1:], strict=False):
            if not isinstance(axis, int) and axis not in axes:
                bins.add(size)
    return tuple(sorted(bins))


KINDS = {".csv": "text", ".jsonl": "text", ".npz": "arrays"}
"""What files hold, by their suffix."""

_WORDS_OF_SPLITS: Mapping[Split, tuple[str, ...]] = {
    "holdout": ("hold",),
    "calibration": ("calib", "train"),
    "validation": ("val", "dev", "eval"),
}
"""Beginnings of the words in a file's name."""


def assign_splits(data: Sequence[Path]) -> dict[Split, Path]:
    """Which file is which split, by the words in their names, else by their order.

    A test file is the holdout where another file can be the validation, else the validation; it is never the
    calibration. Without a holdout the manifest divides the validation.
    """
    for path in data:
        check_file(path, key="--data")
        if path.suffix not in KINDS:
            hint = f"Write {path}:load for a loader." if path.suffix == ".py" else "Use CSV, JSONL or NPZ."
            raise ConfigError(f"{path.suffix or 'no suffix'} is of no known kind.", file=path, hint=hint)
    if len({path.resolve() for path in data}) != len(data):
        raise _unusable("one file stands twice.", "Scales chosen on the rows that judge them look too good.")
    if len(data) == 1:
        raise _unusable(
            f"{data[0].name} alone cannot both calibrate and judge: scales look too good on their own rows.",
            "Give a second file, such as a part of the training data: --data train.csv --data dev.csv. "
            "The validation file is divided into validation and holdout.",
        )
    if not 2 <= len(data) <= 3:
        raise _unusable(f"{len(data)} files.", "Give a calibration and a validation file, and perhaps a holdout.")
    found: dict[Split, Path] = {}
    unnamed: list[Path] = []
    tests: list[Path] = []
    for path in data:
        split = next((s for s, beginnings in _WORDS_OF_SPLITS.items() if _has_word(path, beginnings)), None)
        if split is None:
            (tests if _has_word(path, ("test",)) else unnamed).append(path)
            continue
        _claim(found, split, path)
    for path in tests:  # never the calibration: what it is, the search should not see, or only judge by
        spare = "validation" in found or len(data) == 3
        _claim(found, "holdout" if spare and "holdout" not in found else "validation", path)
    free = [split for split in get_args(Split) if split not in found]
    found.update(zip(free, unnamed, strict=False))
    for split, words in (("calibration", "calib or train"), ("validation", "valid or dev")):
        if split not in found:
            rule = f"no {split} file among {', '.join(path.name for path in data)}."
            raise ConfigError(rule, key="--data", hint=f"Put {words} into its name.")
    return {split: found[split] for split in get_args(Split) if split in found}


def _claim(found: dict[Split, Path], split: Split, path: Path) -> None:
    if split in found:
        raise _unusable(
            f"{found[split].name} and {path.name} both look like the {split} file.",
            "Their names must tell calibration, validation and holdout apart.",
        )
    found[split] = path


def _has_word(path: Path, beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in re.split("[^a-z]+", path.stem.lower()))
