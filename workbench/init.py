"""The first files of a new question: an experiment, a dataset manifest and a search space made for one model.

    initialize(Path("model.onnx"), [Path("train.csv"), Path("dev.csv")], Path(), tokenizer=…, labels=…, name=None)

What can be read off the model and the data is written with a comment saying why; what nobody can know (the order of
the classes) is asked for. The files are read back as `workbench sweep` reads them before anything appears in place.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx

from workbench.artifacts import check_data
from workbench.candidate import ONNXRUNTIME_FUSIONS
from workbench.dataset import Task, read_column
from workbench.dataset.arrays import read_arrays
from workbench.dataset.text import read_texts
from workbench.errors import ConfigError
from workbench.experiment import read_experiment
from workbench.graph import Layer, constants, load_graph, quantizable_layers, read_model
from workbench.metrics import scored_output
from workbench.model import Model
from workbench.preprocess import WELL_KNOWN_INPUTS, Role, open_preprocessor
from workbench.results import Split
from workbench.space import FUSION_PREFIX
from workbench.targets.onnxruntime import parse_cpu
from workbench.targets.onnxruntime_compiler import fusions_that_fire

TEXT_COLUMNS = ("text", "sentence", "content", "query", "question", "utterance", "review", "document", "title")
LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target", "y", "label_id")
TOKEN_COLUMNS = ("tokens", "words", "chars", "characters", "text")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "label", "bio")
"""Names looked for, the likeliest first; upper and lower case are the same."""

LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Padded lengths to choose from: steps of at most 2x, so that less than half of a long text's work is padding."""

_LONGEST = 512  # what BERT and its relatives take, where the model does not tell
_LONGEST_MEASURED = 1 << 16
_MEASURED_TEXTS = 20_000
_CALIBRATION_SAMPLES = 128
_KEEP_FLOAT = (0, 1, 2, 4, 8)
_WORDS_OF_SPLITS: Mapping[Split, tuple[str, ...]] = {
    "holdout": ("hold",),
    "calibration": ("calib", "train"),
    "validation": ("val", "dev", "eval"),
}
"""Beginnings of the words in a file's name."""

_KINDS = {".csv": "text", ".jsonl": "text", ".npz": "arrays"}
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "."}  # of YAML 1.1 and 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What was found out about the data.

    Attributes:
        columns: keys and values of the manifest's `columns`.
        labels: a file the user gave, or the names themselves where classes are numbered; None where none are needed.
        label_note: what a reader must know about the labels.
        calibration_size: samples in the calibration split.
        lengths: tokens of the measured texts, ascending; empty for arrays.
    """

    task: Task
    files: Mapping[Split, Path]
    columns: Mapping[str, str]
    labels: Path | tuple[str, ...] | None
    label_note: str
    calibration_size: int
    tokenizer: Path | None = None
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What was found out about the model.

    Attributes:
        longest: tokens it takes; None where it does not tell.
        fixed_length: of a model that takes no other length.
        fixed_batch: of a model that takes no other batch.
        fusions: that change this model.
    """

    model: Model
    layers: tuple[Layer, ...]
    longest: int | None
    fixed_length: int | None
    fixed_batch: int | None
    fusions: tuple[str, ...]


def initialize(
    model: Path,
    data: Sequence[Path],
    to: Path,
    *,
    tokenizer: Path | None,
    labels: Path | None,
    name: str | None,
) -> tuple[Path, ...]:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml` and `search_spaces/NAME.yaml` below `to`.

    All of them or none: they are first written elsewhere and read back with all that they refer to. Where classes
    are numbered in the data, `calibration/NAME.labels.json` comes with them.

    Args:
        data: a calibration file, a validation file and perhaps a holdout, told apart by their names; those whose
            names say nothing take the free places in that order.
        labels: needed for text whose labels are names: only the model's training knows their order.
        name: None for the model's file name, or its folder's where the file is called model.onnx.

    Returns:
        The files written, the experiment first.

    Raises:
        ConfigError: a file exists already, an argument is missing, or model and data do not fit.
        CompileError: ONNX Runtime refused the model.
    """
    chosen = _name_of(model) if name is None else name
    if not re.fullmatch(r"\w[\w.-]*", chosen):
        raise ConfigError(f"{chosen!r} cannot name a file.", key="--name", hint="Use letters, digits, '-', '_', '.'.")
    for path in _files_of(to, chosen):
        if path.exists():
            raise ConfigError("exists already and is not overwritten.", file=path, hint="Choose another --name.")
    corpus = examine_data(data, read_model(model), tokenizer=tokenizer, labels=labels)
    outline = examine_model(model)
    cores = parse_cpu(None).cores  # what this process may run on; `workbench doctor` warns of a quota below it
    with tempfile.TemporaryDirectory(prefix="workbench-init-") as folder:
        staging = Path(folder)
        staged = _contents(chosen, staging, outline, corpus, cores, _absolute)
        _write_all(staged)
        _read_back(next(iter(staged)), staging)
    contents = _contents(chosen, to, outline, corpus, cores, _relative)
    _write_all(contents)
    return tuple(contents)


# --- the data ------------------------------------------------------------------------------------------------------


def examine_data(data: Sequence[Path], model: Model, *, tokenizer: Path | None, labels: Path | None) -> Corpus:
    """Find out splits, columns, task and lengths.

    Raises:
        ConfigError: a file cannot be read, no column of a known name holds texts, or an argument is missing.
    """
    files = assign_splits(data)
    for key, path in (("--tokenizer", tokenizer), ("--labels", labels)):
        if path is not None and not path.is_file():
            raise ConfigError("no such file.", file=path, key=key)
    kinds = {_KINDS[path.suffix] for path in files.values()}
    if len(kinds) > 1:
        raise ConfigError("text and arrays cannot be mixed.", key="--data", hint="Give files of one kind.")
    if kinds == {"text"}:
        return _examine_texts(files, model, tokenizer, labels)
    if tokenizer is not None:
        raise ConfigError("arrays need no tokenizer.", key="--tokenizer", hint="Leave it out.")
    return _examine_arrays(files, model, labels)


def assign_splits(data: Sequence[Path]) -> dict[Split, Path]:
    """Which file is which split, by the words in their names, else by their order.

    A test file is the holdout where another file can be the validation, else the validation; it is never the
    calibration. Without a holdout the manifest divides the validation.

    Raises:
        ConfigError: a file is missing or of an unknown kind, two claim one split, or no two splits can be filled.
    """
    for path in data:
        if not path.is_file():
            raise ConfigError("no such file.", file=path, key="--data")
        if path.suffix not in _KINDS:
            raise ConfigError(
                f"{path.suffix or 'no suffix'} is of no known kind.", file=path, hint="Use CSV, JSONL or NPZ."
            )
    if len({path.resolve() for path in data}) != len(data):
        raise ConfigError(
            "one file stands twice.", key="--data", hint="Scales chosen on the rows that judge them look too good."
        )
    if len(data) == 1:
        raise ConfigError(
            f"{data[0].name} alone cannot both calibrate and judge: scales look too good on their own rows.",
            key="--data",
            hint="Give a second file, such as a part of the training data: --data train.csv --data dev.csv. "
            "The validation file is divided into validation and holdout.",
        )
    if not 2 <= len(data) <= 3:
        raise ConfigError(
            f"{len(data)} files.", key="--data", hint="Give a calibration and a validation file, and perhaps a holdout."
        )
    found: dict[Split, Path] = {}

    def claim(split: Split, path: Path) -> None:
        if split in found:
            raise ConfigError(
                f"{found[split].name} and {path.name} both look like the {split} file.",
                key="--data",
                hint="Their names must tell calibration, validation and holdout apart.",
            )
        found[split] = path

    unnamed: list[Path] = []
    tests: list[Path] = []
    for path in data:
        split = next((s for s, beginnings in _WORDS_OF_SPLITS.items() if _has_word(path, beginnings)), None)
        if split is not None:
            claim(split, path)
        else:
            (tests if _has_word(path, ("test",)) else unnamed).append(path)
    for path in tests:  # never the calibration: what it is, the search should not see, or only judge by
        spare = "validation" in found or len(data) == 3
        claim("holdout" if spare and "holdout" not in found else "validation", path)
    free = [split for split in get_args(Split) if split not in found]
    found.update(zip(free, unnamed, strict=False))
    for split in ("calibration", "validation"):
        if split not in found:
            raise ConfigError(
                f"no {split} file among {', '.join(path.name for path in data)}.",
                key="--data",
                hint=f"Put {'calib or train' if split == 'calibration' else 'valid or dev'} into its name.",
            )
    return {split: found[split] for split in get_args(Split) if split in found}


def _has_word(path: Path, beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in re.split("[^a-z]+", path.stem.lower()))


def _examine_arrays(files: Mapping[Split, Path], model: Model, labels: Path | None) -> Corpus:
    first = files["calibration"]
    rows = read_arrays(first, label=None, classes=None, tags=False)
    shapes = {name: array.shape for name, array in rows.inputs}
    numbers = {name for name, array in rows.inputs if np.dtype(array.dtype).kind in "iu"}
    label = _match(numbers - {spec.name for spec in model.inputs}, LABEL_COLUMNS)
    task: Task = "tensors"
    if label is not None:
        task = "ner" if len(shapes[label]) == 2 else "classification"
    elif labels is not None:
        raise _no_label_column(first, shapes)
    if task == "ner" and labels is None:
        raise ConfigError(
            f"array {label!r} holds a tag per position, and only the model's training knows what the ids mean.",
            key="--labels",
            hint=_LABELS_HINT,
        )
    return Corpus(
        task=task,
        files=files,
        columns={} if label is None else {"label": label},
        labels=labels,
        label_note="names in the order of the model's outputs",
        calibration_size=rows.size,
    )


_LABELS_HINT = (
    "Write them as a JSON list in the order of the model's outputs (`id2label` in the checkpoint's config.json) "
    "and give it with --labels: in a wrong order every accuracy would be wrong."
)


def _examine_texts(files: Mapping[Split, Path], model: Model, tokenizer: Path | None, labels: Path | None) -> Corpus:
    first = files["calibration"]
    record = _first_record(first)
    lists = [column for column, value in record.items() if isinstance(value, list)]
    text = _match(lists, TOKEN_COLUMNS)
    words = text is not None
    text = text or _match(record.keys() - set(lists), TEXT_COLUMNS)
    if text is None:
        raise ConfigError(
            f"none of its columns ({', '.join(record)}) is known to hold the text.",
            file=first,
            key="--data",
            hint="Call it 'text', or 'tokens' where it is a list.",
        )
    label = _match([c for c in (lists if words else record) if c != text], TAG_COLUMNS if words else LABEL_COLUMNS)
    if words and label is None:
        raise ConfigError(
            f"no list of tags beside {text!r} (its columns are {', '.join(record)}).",
            file=first,
            key="--data",
            hint="Call it 'tags'.",
        )
    if tokenizer is None:
        raise ConfigError(
            f"{first.name} holds texts, which need the model's tokenizer.",
            key="--tokenizer",
            hint="Give its tokenizer.json (`tokenizer.save_pretrained` of a fast tokenizer writes one).",
        )
    if label is None and labels is not None:
        raise _no_label_column(first, record)
    task: Task = "ner" if words else "tensors" if label is None else "classification"
    size, lengths = _lengths(files, tokenizer, text, task)  # reads every row strictly, so `_labels` need not
    found, note = _labels(task, files, label, labels, model)
    keys = ("tokens", "tags") if task == "ner" else ("text", "label")
    return Corpus(
        task=task,
        files=files,
        columns={key: column for key, column in zip(keys, (text, label), strict=True) if column is not None},
        labels=found,
        label_note=note,
        calibration_size=size,
        tokenizer=tokenizer,
        lengths=lengths,
    )


def _no_label_column(file: Path, names: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"--labels was given, but none of {', '.join(names)} is known to hold the label.",
        file=file,
        key="--data",
        hint="Call it 'label'.",
    )


def _labels(
    task: Task, files: Mapping[Split, Path], column: str | None, labels: Path | None, model: Model
) -> tuple[Path | tuple[str, ...] | None, str]:
    """The labels and a note on them. Names without a file are refused: an order that was guessed wrong would not
    fail, it would give an accuracy near zero, or worse, a plausible one."""
    if column is None:
        return None, ""
    if labels is not None:
        return labels, "names in the order of the model's outputs"
    if task == "ner":
        rule = "tags need their names, and only the model's training knows their order."
        raise ConfigError(rule, key="--labels", hint=_LABELS_HINT)
    values: set[str] = set()
    for path in files.values():
        values.update(_distinct(path, column))
    if not all(value.isascii() and value.isdigit() for value in values):
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
        raise ConfigError(
            f"the labels go from {numbers[0]} to {numbers[-1]}, but the model's classes are 0 to {classes - 1}.",
            key="--data",
            hint="Write each label as the index of the model's output.",
        )
    return tuple(map(str, range(classes))), "the data number the classes, so the names are numbers; rename at will"


def _distinct(path: Path, column: str) -> set[str]:
    if path.suffix == ".csv":
        return set(read_column(path, column))
    with path.open(encoding="utf-8-sig") as lines:
        records = (json.loads(line) for line in lines if line.strip())
        return {str(record[column]) for record in records if column in record}


def _lengths(files: Mapping[Split, Path], tokenizer: Path, text: str, task: Task) -> tuple[int, tuple[int, ...]]:
    """Calibration samples, and the tokens of up to `_MEASURED_TEXTS` evenly spaced texts of each file, ascending."""
    preprocessor = open_preprocessor(tokenizer, max_length=_LONGEST_MEASURED)
    size, found = 0, []
    for split, path in files.items():
        rows = read_texts(path, preprocessor, text=text, label=None, labels=(), words=task == "ner")
        step = -(-rows.size // _MEASURED_TEXTS)
        found.append(rows.lengths(np.arange(0, rows.size, step)))
        size = rows.size if split == "calibration" else size
    return size, tuple(np.sort(np.concatenate(found)).tolist())


def _first_record(path: Path) -> Mapping[str, Any]:
    """The first row of a JSONL file, or the header of a CSV file with no values; the rest is not looked at."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        if path.suffix == ".csv":
            found: Any = dict.fromkeys(next(csv.reader(stream), []))
        else:
            line = next((line for line in stream if line.strip()), "{}")
            try:
                found = json.loads(line)
            except json.JSONDecodeError as error:
                raise ConfigError(f"not valid JSON: {error}.", file=path, key="--data") from error
    if not isinstance(found, dict) or not found:
        raise ConfigError("its first line names no columns.", file=path, key="--data")
    return found


def _match(columns: Iterable[str], known: Sequence[str]) -> str | None:
    """The column whose name stands first among the known ones, as the file spells it."""
    spelled = {column.strip().lower(): column for column in columns}
    return next((spelled[name] for name in known if name in spelled), None)


# --- the model -----------------------------------------------------------------------------------------------------


def examine_model(path: Path) -> Outline:
    """Find out layers, limits and fusions; compiles the model twice to see which fusions change it.

    Raises:
        ConfigError: the file is no readable model.
        CompileError: ONNX Runtime refused it.
    """
    model = read_model(path)
    proto = load_graph(model)
    shapes = [spec.shape for spec in model.inputs]
    batch = shapes[0][0] if shapes[0] else None
    length = shapes[0][1] if len(shapes[0]) == 2 else None
    return Outline(
        model=model,
        layers=quantizable_layers(proto),
        longest=longest_text(proto),
        fixed_length=length if isinstance(length, int) else None,
        fixed_batch=batch if isinstance(batch, int) else None,
        fusions=tuple(name for name in fusions_that_fire(path) if name in ONNXRUNTIME_FUSIONS),
    )


def longest_text(proto: onnx.ModelProto) -> int | None:
    """Tokens that the table of position embeddings holds, None without such a table.

    It is known by being as wide as the token embedding without being indexed by an input of the model. Rounded down
    to a multiple of 16, because RoBERTa and its kin keep two rows of 514 for themselves.
    """
    known = constants(proto)
    repeats = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type in ("Cast", "Identity")}
    inputs = {value.name for value in proto.graph.input}
    widths, tables = set(), []
    for node in proto.graph.node:
        if node.op_type != "Gather" or node.input[0] not in known:
            continue
        table, index = known[node.input[0]], node.input[1]
        if len(table.dims) != 2 or table.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        while index in repeats:
            index = repeats[index]
        if index in inputs:
            widths.add(table.dims[1])
        elif table.dims[0] >= LENGTHS[0]:  # the segment table has two rows
            tables.append(table)
    return min((int(t.dims[0]) // 16 * 16 for t in tables if t.dims[1] in widths), default=None)


# --- the files -----------------------------------------------------------------------------------------------------


def _name_of(model: Path) -> str:
    stem = model.resolve().parent.name if model.stem == "model" else model.stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")


def _files_of(root: Path, name: str, corpus: Corpus | None = None) -> tuple[Path, ...]:
    """Experiment, manifest, space, and the labels where they come out of the data (or might, without a corpus)."""
    files = [root / folder / f"{name}.yaml" for folder in ("experiments", "calibration", "search_spaces")]
    if corpus is None or isinstance(corpus.labels, tuple):
        files.append(root / "calibration" / f"{name}.labels.json")
    return tuple(files)


def _contents(
    name: str, root: Path, outline: Outline, corpus: Corpus, cores: int, show: Callable[[Path, Path], str]
) -> dict[Path, str]:
    """File → text, the experiment first.

    Args:
        show: (file referred to, file that refers to it) → path to write.
    """
    files = _files_of(root, name, corpus)
    texts = [
        experiment_text(name, lambda path: show(path, files[0]), outline, corpus),
        manifest_text(name, lambda path: show(path, files[1]), outline, corpus),
        space_text(name, outline, cores),
    ]
    if isinstance(corpus.labels, tuple):
        texts.append(json.dumps(corpus.labels, indent=1) + "\n")
    return dict(zip(files, texts, strict=True))


def experiment_text(name: str, show: Callable[[Path], str], outline: Outline, corpus: Corpus) -> str:
    """The experiment file; `show` gives the path to write for a file."""
    batch = outline.fixed_batch or 8
    samples = min(_CALIBRATION_SAMPLES, corpus.calibration_size)
    if outline.fixed_batch is not None:  # such a model takes full batches only
        samples = max(batch, samples // batch * batch)
    judged = {
        "classification": "share of samples in the right class",
        "ner": "entity-level F1",
        "tensors": "share of samples with the float model's top answer, as there are no labels",
    }[corpus.task]
    return f"""\
# One experiment file is one question; the same file and seed ask it again. Paths are relative to this file.
#   workbench plan experiments/{name}.yaml      says what a sweep would cost
#   workbench sweep experiments/{name}.yaml     searches; stop it at any time, the same command goes on
version: 1
name: {_scalar(name)}
about: Which INT8 and serving settings make {name} faster on this CPU without losing accuracy?
model: {_scalar(show(outline.model.path))}
dataset: {_scalar(f"../calibration/{name}.yaml")}
target: onnxruntime                     # what executes the model
search_space: {_scalar(f"../search_spaces/{name}.yaml")}  # what may vary
calibration: {{samples: {samples}, batch: {batch}}}   # observed once; every quantization algorithm is derived from them
# The axes of the Pareto front. accuracy: {judged}.
# Others: latency_p95_ms, throughput_per_s, size_mb, peak_memory_mb.
objectives: [latency_p50_ms, accuracy]
constraints:
  accuracy_drop_pp: 0.5                 # at most half a percentage point below the float model
budget: {{trials: 24, timeout: 30m}}      # whichever comes first
measure: {{calls: 1000, short_calls: 100}}  # timed calls in full (P99 needs 1000), and in the first quick look
sampler: auto
seed: 0
"""


def manifest_text(name: str, show: Callable[[Path], str], outline: Outline, corpus: Corpus) -> str:
    """The dataset manifest; `show` gives the path to write for a file."""
    about = {
        "calibration": "which values do activations take?",
        "validation": "scores candidates during the search",
        "holdout": "never seen by the search; confirms its front",
    }
    lines = [
        f"# Dataset of the experiment {name}. Check the splits: they were told apart by the files' names and order.",
        "# Paths are relative to this file.",
        "version: 1",
        f"task: {corpus.task}",
        "files:",
        *(f"  {split}: {_scalar(show(path))}  # {about[split]}" for split, path in corpus.files.items()),
    ]
    if "holdout" not in corpus.files:
        lines += [
            "# There is no holdout file: a seeded shuffle sets this share of the validation aside.",
            "split: {holdout_fraction: 0.5, seed: 0}",
        ]
    if corpus.columns:
        lines.append(f"columns: {{{', '.join(f'{key}: {_scalar(text)}' for key, text in corpus.columns.items())}}}")
    if corpus.task == "tensors":
        lines.append("# No labels were found: candidates are compared with the float model's own answers.")
    if corpus.labels is not None:
        path = show(corpus.labels) if isinstance(corpus.labels, Path) else f"{name}.labels.json"
        lines.append(f"labels: {_scalar(path)}  # {corpus.label_note}")
    if corpus.tokenizer is not None:
        lines += [f"tokenizer: {_scalar(show(corpus.tokenizer))}", *_length_lines(outline, corpus.lengths)]
        lines += _input_lines(outline.model)
    return "\n".join(lines) + "\n"


def choose_lengths(lengths: Sequence[int], *, longest: int | None, fixed: int | None) -> tuple[int, tuple[int, ...]]:
    """(max_length, bins) that cut no text the model could take and hold no bin that no text falls into.

    Args:
        lengths: tokens of the data's texts, at least one.
        longest: tokens the model takes, None where it does not tell.
        fixed: the one length a model of fixed shape takes.
    """
    if fixed is not None:
        return fixed, (fixed,)
    limit = longest or _LONGEST
    bins = {min(limit, next((b for b in LENGTHS if b >= length), limit)) for length in lengths}
    return max(bins), tuple(sorted(bins))


def _length_lines(outline: Outline, lengths: Sequence[int]) -> list[str]:
    max_length, bins = choose_lengths(lengths, longest=outline.longest, fixed=outline.fixed_length)
    cut_percent = 100 * sum(length > max_length for length in lengths) / len(lengths)
    half = lengths[len(lengths) // 2]
    if outline.fixed_length is not None:
        why = "the model takes this length only"
    elif outline.longest is not None:
        why = f"the model's position table allows {outline.longest}"
    else:
        why = f"the model does not tell its limit; {_LONGEST} is BERT's"
    return [
        f"# Of {len(lengths)} texts measured, half have up to {half} tokens and the longest has {lengths[-1]}; {why}.",
        f"max_length: {max_length}  # tokens, special ones included; {cut_percent:.2g} % of the texts are cut",
        "# A batch is padded to the smallest bin that holds its longest text: fewer bins, more padding.",
        f"bins: [{', '.join(map(str, bins))}]",
    ]


def _input_lines(model: Model) -> list[str]:
    """`inputs:` where a name is not one that the workbench knows; guessed from the name, then checked by reading."""
    if all(spec.name in WELL_KNOWN_INPUTS for spec in model.inputs):
        return []
    roles: dict[str, Role] = {}
    for spec in model.inputs:
        name = spec.name.lower()
        if spec.name in WELL_KNOWN_INPUTS:
            roles[spec.name] = WELL_KNOWN_INPUTS[spec.name]
        else:
            roles[spec.name] = "mask" if "mask" in name else "types" if "type" in name or "seg" in name else "ids"
    written = ", ".join(f"{_scalar(name)}: {role}" for name, role in roles.items())
    return [
        "# Which input takes the token ids, the mask and the segments was guessed from the names.",
        f"inputs: {{{written}}}",
    ]


def space_text(name: str, outline: Outline, cores: int) -> str:
    """The search space: only what can change this model on this machine."""
    weights = [layer for layer in outline.layers if layer.weight is not None]
    attention = len(outline.layers) - len(weights)
    schemes = ["none"]
    if any(layer.op_type != "Conv" for layer in weights):  # dynamic INT8 serves MatMul and Gemm
        schemes.append("dynamic")
    if outline.layers:
        schemes.append("static")
    keep_float = [count for count in _KEEP_FLOAT if count < max(1, len(weights))]
    threads = _halvings(cores)
    lines = [
        f"# What may vary when {name} runs on ONNX Runtime (CPU).",
        f"# INT8 can serve {len(weights)} of its layers and {attention} of its products of two activations.",
        f"# The machine this was written on has {cores} cores.",
        "#",
        "# The first choice of a parameter is its default; presets name only what differs from it. `when:` says where",
        f"# one applies. `workbench space search_spaces/{name}.yaml` explains each and counts the candidates.",
        "version: 1",
        "target: onnxruntime",
        "",
        "parameters:",
    ]
    if not outline.layers:
        lines.append("  # No layer of this model can be INT8: nothing multiplies by a constant float32 matrix.")
    lines += _parameter("quantization.scheme", schemes)
    if "static" in schemes:
        static = "{quantization.scheme: [static]}"
        lines += _parameter("quantization.algorithm", ["minmax", "percentile", "kl", "mse"], static)
        lines += _parameter("quantization.percentile", [99.99, 99.9, 99.999], "{quantization.algorithm: [percentile]}")
        lines += _parameter("quantization.activation_symmetric", [False, True], static)
        quantized = ", ".join(schemes[1:])
        lines += _parameter(
            "quantization.weight_granularity", ["channel", "tensor"], f"{{quantization.scheme: [{quantized}]}}"
        )
        products = [False, True] if attention and weights else [bool(attention)]
        if not attention:
            lines.append("  # No MatMul of this model multiplies two activations.")
        lines += _parameter("quantization.attention_matmul", products, static)
        lines.append(f"  # How many of the most sensitive of {len(weights)} layers stay in float.")
        lines += _parameter("quantization.keep_float", keep_float, static)
    lines += ["", *_parameter("compile.graph_optimization", ["all", "extended", "basic"])]
    if outline.fusions:
        lines.append(
            "  # The fusions that change this model. In quotes for readers of YAML 1.1, to whom a bare off is false."
        )
    for fusion in outline.fusions:
        lines += [f"  {FUSION_PREFIX}{fusion}:", '    choices: ["on", "off"]']
    lines += ["", *_parameter("serving.intra_op_threads", threads)]
    if outline.fixed_batch is not None:
        lines.append("  # The model takes no other batch.")
    lines += _parameter("serving.batch", [outline.fixed_batch or 1])
    if len(schemes) > 1:
        lines += [
            "",
            "forbid:",
            f"  - quantization.scheme: [{', '.join(schemes[1:])}]",
            "    compile.graph_optimization: [basic]",
            "    reason: ONNX Runtime forms integer kernels from `extended` on; below it an INT8 file runs in float.",
        ]
    lines += [
        "",
        "# Evaluated before anything is proposed: the float model first, then what usually does well.",
        "presets:",
    ]
    lines.append("  - {name: float}")
    if len(threads) > 1:
        lines.append("  - {name: float-1-thread, serving.intra_op_threads: 1}")
    lines += [f"  - {{name: {scheme}-int8, quantization.scheme: {scheme}}}" for scheme in schemes[1:]]
    if "static" in schemes and 2 in keep_float:
        lines.append("  - {name: static-int8-2-in-float, quantization.scheme: static, quantization.keep_float: 2}")
    return "\n".join(lines) + "\n"


def _parameter(name: str, choices: Sequence[str | int | float | bool], when: str | None = None) -> list[str]:
    shown = ", ".join(str(choice).lower() for choice in choices)
    return [f"  {name}:", *([f"    when: {when}"] if when is not None else []), f"    choices: [{shown}]"]


def _halvings(cores: int) -> list[int]:
    """16 → [16, 8, 4, 2, 1]."""
    counts = [cores]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def _scalar(text: str) -> str:
    """A YAML scalar that every reader takes for this very text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    return text if plain else json.dumps(text, ensure_ascii=False)


def _relative(path: Path, file: Path) -> str:
    return Path(os.path.relpath(path.resolve(), file.parent.resolve())).as_posix()


def _absolute(path: Path, file: Path) -> str:
    return path.resolve().as_posix()


def _read_back(experiment: Path, staging: Path) -> None:
    """Read the staged files as a sweep does. An error speaks of the user's files, never of the staged ones."""
    try:
        check_data(read_experiment(experiment))
    except ConfigError as error:
        inside = error.file is None or Path(error.file).resolve().is_relative_to(staging.resolve())
        raise ConfigError(
            error.rule,
            file=None if inside else error.file,
            line=None if inside else error.line,
            key=error.key,
            hint=error.hint,
        ) from error


def _write_all(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet: all under temporary names, then each gets its own; on failure none stays."""
    written: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            written[path] = temporary
            temporary.write_text(text, encoding="utf-8")
        for path, temporary in written.items():
            temporary.replace(path)
            placed.append(path)
    except OSError as error:
        for path in (*written.values(), *placed):
            path.unlink(missing_ok=True)
        raise ConfigError(
            f"cannot be written: {error.strerror} ({error.filename}).", key="--to", hint="Nothing was written."
        ) from error
