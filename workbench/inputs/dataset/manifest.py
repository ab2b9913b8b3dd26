"""Dataset manifest: YAML → Dataset. Everything the manifest names is read and checked here, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.inputs.dataset.arrays import read_arrays
from workbench.inputs.dataset.batch import GRAPH_TASKS, Source, Task
from workbench.inputs.dataset.interface_reader import check_kind, interface_of
from workbench.inputs.dataset.loader import read_loader
from workbench.inputs.dataset.metric_reader import metric_of
from workbench.inputs.dataset.retrieval import read_retrieval
from workbench.inputs.dataset.sizing import ONE_SIZE, sizing_of
from workbench.inputs.dataset.splits import Dataset, SplitRows, divided, read_division
from workbench.inputs.dataset.text import read_texts
from workbench.user_code import named_code
from workbench.values.documents.json_reader import read_json
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError, nearest
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.preprocess import (
    LONGEST_TEXT,
    WELL_KNOWN_INPUTS,
    Preprocessor,
    Role,
    TokenInput,
    open_preprocessor,
)

Kind = Literal["text", "arrays", "loader"]
Files = Path | Mapping[str, Path]
"""A CSV, JSONL or NPZ file, or input name → NPY file."""

_KEYS = (
    *("version", "task", "files", "columns", "labels", "tokenizer", "max_length", "bins"),
    *("inputs", "axes", "state", "outputs", "metric", "split", "loader", "retrieval"),
)
_SUFFIXES: Mapping[str, Kind] = {".csv": "text", ".jsonl": "text", ".npz": "arrays"}


def read_manifest(path: Path, model: Model | None = None) -> Dataset:
    """Read a manifest and all its data: text is kept, arrays are checked where they lie, a loader runs once.

    Without a holdout of its own, the validation is divided: `split.holdout_fraction` of its rows (rounded, at least
    one) become the holdout. The division follows from `split.seed` and the file's content alone.

    Args:
        model: tells which of the well-known inputs text becomes when the manifest has no `inputs`, and their
            integer type; without it they are int64 `input_ids`, `attention_mask` and `token_type_ids`.

    Raises:
        ConfigError: names file, line and key of what is wrong.
    """
    with read_yaml(path) as top:
        for key in top.names():  # here, because what follows from a misspelt key may end the reading
            if key not in _KEYS:
                top.refuse(key, "unknown key.", nearest(key, _KEYS))
        task: Task = top.text("task", choices=GRAPH_TASKS)  # type: ignore[assignment]  # one of the choices
        loader = named_code(top, "loader", top.text("loader")) if top.has("loader") else None
        files = {} if loader else _files(top)
        kind = "loader" if loader else _kind(top, files)
        truths = top.has("metric") or top.has("outputs")  # targets may be of any kind, for these to look at
        column, label = _columns(top, kind, task, truths=truths)
        labels = _labels(top, task, required=(kind == "text" or task == "ner") and not top.wrong("task"))
        interface = interface_of(top)
        if interface.outputs and task != "tensors":
            top.refuse(
                "outputs",
                f"means nothing for the task {task!r}, which is scored by its labels.",
                "Leave it out, or write task: tensors to compare every output with the float model's.",
            )
        check_kind(top, texts=kind == "text")
        preprocessor = _preprocessor(top, model) if kind == "text" else None
        metric = metric_of(top)
        retrieval, said = read_retrieval(top, preprocessor)
        division = read_division(top, files)
    if retrieval is not None:
        interface = replace(interface, outputs=retrieval.uses(() if model is None else [o.name for o in model.outputs]))
    sizing = ONE_SIZE if kind == "text" else sizing_of(interface, model, top.file)
    classes = len(labels) or None
    ner = task == "ner"

    def source(split: Split) -> Source | None:
        if loader is not None:
            return read_loader(loader, split, task=task, classes=classes, truths=truths, sizing=sizing)
        if split not in files:
            return None
        named = files[split]
        if preprocessor is None:
            free = truths and task == "tensors"
            return read_arrays(named, label=label, classes=classes, tags=ner, truths=free, sizing=sizing)
        assert isinstance(named, Path)
        free, scored = task == "tensors", split != "calibration"
        if retrieval is None:
            return read_texts(named, preprocessor, text=column, label=label, labels=labels, words=ner, truths=free)
        own = said if scored or retrieval.candidates else None
        queries = read_texts(named, preprocessor, text=column, label=own, labels=(), words=False, truths=True)
        return retrieval.rows_of(queries, scored=scored)

    calibration, validation, holdout = source("calibration"), source("validation"), source("holdout")
    assert calibration is not None, "only a holdout may be left out"
    assert validation is not None
    seen, held = divided(top, validation, holdout, *division)
    return Dataset(
        path=top.file,
        task=task,
        labels=labels,
        preprocessor=preprocessor,
        calibration=SplitRows(source=calibration, seed=division[0], start=0, stop=calibration.size),
        validation=seen,
        holdout=held,
        interface=interface,
        metric=metric,
        retrieval=retrieval,
    )


def _files(top: Section) -> dict[Split, Files]:
    found: dict[Split, Files] = {}
    with top.section("files") as section:
        for split in get_args(Split):
            if split == "holdout" and not section.has(split):
                continue
            if isinstance(section.raw(split), dict):
                arrays = section.section(split)
                found[split] = {name: arrays.file_path(name) for name in arrays.names()}
            else:
                found[split] = section.file_path(split)
    return found


def _kind(top: Section, files: Mapping[Split, Files]) -> Kind:
    kinds: dict[Split, Kind] = {}
    for split, named in files.items():
        if not isinstance(named, Path):
            kinds[split] = "arrays"
        elif named.suffix in _SUFFIXES:
            kinds[split] = _SUFFIXES[named.suffix]
        else:
            top.section("files").refuse(
                split,
                f"{named.name} is of no known kind.",
                f"Use {', '.join(_SUFFIXES)}, a mapping of input name to .npy, or a loader.",
            )
    if len(set(kinds.values())) > 1:
        raise top.error("files", "splits are of different kinds, text and arrays.")
    if not kinds:
        top.settle()  # nothing tells which keys are needed
    return kinds["calibration"] if "calibration" in kinds else next(iter(kinds.values()))


def _columns(top: Section, kind: Kind, task: Task, *, truths: bool) -> tuple[str, str | None]:
    with top.section("columns") as section:
        column, tokens = "", "tokens" if task == "ner" else "text"
        for key in ("id", "label") if top.has("retrieval") else ():
            section.has(key)  # which `read_retrieval` reads
        if kind == "text":
            column = section.text(tokens, tokens)
        if kind == "loader" or (task == "tensors" and not (truths and (kind == "arrays" or section.has("label")))):
            return column, None
        if kind == "arrays":
            return column, section.text("label", "labels")
        label = "tags" if task == "ner" else "label"
        return column, section.text(label, label)


def _labels(top: Section, task: Task, required: bool) -> tuple[str, ...]:
    if task == "tensors" or not (top.has("labels") or required):
        return ()
    path = top.file_path("labels")
    if top.wrong("labels"):
        return ()
    written = read_json(path)
    names: Sequence[Any] = written if isinstance(written, list) else []
    if isinstance(written, dict) and sorted(map(repr, written.values())) == sorted(map(repr, range(len(written)))):
        names = sorted(written, key=written.__getitem__)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            "expected a list of names, or an object of name → index with every index from 0 once.", file=path
        )
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ConfigError(f"label {twice!r} stands twice.", file=path)
    for tag in names if task == "ner" else ():
        if tag != "O" and not (tag[:2] in ("B-", "I-") and tag[2:]):
            raise ConfigError(f"{tag!r} is not a BIO tag.", file=path, hint="Write O, B-TYPE and I-TYPE.")
    return tuple(names)


def _preprocessor(top: Section, model: Model | None) -> Preprocessor:
    tokenizer = top.file_path("tokenizer")
    max_length = top.integer("max_length", minimum=1, maximum=LONGEST_TEXT)
    bins = top.integers("bins", maximum=LONGEST_TEXT) if top.has("bins") else None
    inputs = _inputs(top, model)
    top.settle()
    try:
        return open_preprocessor(tokenizer, max_length=max_length, bins=bins, inputs=inputs)
    except ConfigError as error:
        if error.file is not None:
            raise
        raise top.error(error.key, error.rule, error.hint) from error


def _inputs(top: Section, model: Model | None) -> tuple[TokenInput, ...] | None:
    dtypes = {spec.name: spec.dtype for spec in model.inputs} if model is not None else {}
    roles: dict[str, Role] = {name: role for name, role in WELL_KNOWN_INPUTS.items() if name in dtypes}
    if top.has("inputs"):
        with top.section("inputs") as section:
            written = [n for n in section.names() if not isinstance(section.raw(n, None), dict)]
            roles = {n: section.text(n, choices=get_args(Role)) for n in written} or roles  # type: ignore[misc]  # choices
    elif model is None:
        return None
    return tuple(TokenInput(name=name, role=role, dtype=dtypes.get(name, "int64")) for name, role in roles.items())
