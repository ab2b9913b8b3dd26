"""All files or none: written elsewhere first and read back as a sweep reads them, then put in place together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workbench.commands.init.data import Corpus, examine_data
from workbench.commands.init.experiment import experiment_text
from workbench.commands.init.manifest import manifest_text
from workbench.commands.init.model import Outline, examine_model
from workbench.commands.init.space import space_text
from workbench.evaluation.data_check import check_data
from workbench.graph.door import open_foreign
from workbench.inputs.experiment import read_experiment
from workbench.targets import REFERENCE
from workbench.values.errors import ConfigError
from workbench.values.system.cpu import parse_cpu
from workbench.values.system.scratch import scratch_folder


def initialize(
    model: Path,
    data: Sequence[Path],
    to: Path,
    *,
    tokenizer: Path | None,
    labels: Path | None,
    name: str | None,
    target: str = REFERENCE,
) -> tuple[Path, ...]:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml` and `search_spaces/NAME.yaml` below `to`.

    All of them or none: they are first written elsewhere and read back with all that they refer to. Where classes
    are numbered in the data, `calibration/NAME.labels.json` comes with them.

    Args:
        data: a calibration file, a validation file and perhaps a holdout, told apart by their names; those whose
            names say nothing take the free places in that order.
        labels: needed for text whose labels are names: only the model's training knows their order.
        target: what is to execute the model.
        name: None for the model's file name, or its folder's where the file is called model.onnx.

    Returns:
        The files written, the experiment first.

    Raises:
        ConfigError: a file exists already, an argument is missing, or model and data do not fit.
        CompileError: the target refused the model.
    """
    chosen = _name_of(model) if name is None else name
    if not re.fullmatch(r"\w[\w.-]*", chosen):
        raise ConfigError(f"{chosen!r} cannot name a file.", key="--name", hint="Use letters, digits, '-', '_', '.'.")
    for path in _files_of(to, chosen):
        if path.exists():
            raise ConfigError("exists already and is not overwritten.", file=path, hint="Choose another --name.")
    corpus = examine_data(data, open_foreign(model), tokenizer=tokenizer, labels=labels)
    outline = examine_model(model, target)
    cores = parse_cpu(None).cores  # what this process may run on; `workbench doctor` warns of a quota below it
    with scratch_folder("init") as staging:
        staged = _contents(chosen, staging, outline, corpus, cores, _absolute)
        _write_all(staged)
        _read_back(next(iter(staged)), staging)
    contents = _contents(chosen, to, outline, corpus, cores, _relative)
    _write_all(contents)
    return tuple(contents)


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
        space_text(name, outline, cores, text=bool(corpus.lengths)),
    ]
    if isinstance(corpus.labels, tuple):
        texts.append(json.dumps(corpus.labels, indent=1) + "\n")
    return dict(zip(files, texts, strict=True))


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
