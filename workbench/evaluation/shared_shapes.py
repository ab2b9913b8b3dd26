"""One compile for each fixed shape, shared by all candidates that differ only in which shapes they hold.

A compiler that fixes every shape makes a set of files for each candidate. Files of the same settings and shape are the
same file, and a compile may take minutes; so each file has its own entry in the store, and a set takes from there what
another set already has.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.evaluation.store import Store
from workbench.targets.base import Target
from workbench.values.artifact import Artifact, CompiledFile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, decode

KIND = "om"
_PART = "part.json"

Shape = tuple[int, int | None]
"""Batch and padded length of one file."""


def shares_shapes(candidate: Candidate) -> bool:
    """Whether the candidate's artifact is a set of files that other sets may hold too."""
    return candidate.compile.one_file_a_shape()


def compile_missing_shapes(
    candidate: Candidate, target: Target, lowered: Path, to: Path, store: Store, key: Mapping[str, object]
) -> Artifact:
    """The candidate's artifact in `to`: files that the store has, and the rest compiled now, batch by batch.

    Kernels are counted in the file of the largest shape, so that file is compiled again where nobody counted it.

    Args:
        key: everything besides the candidate's compile part that decides a file's content.

    Raises:
        CompileError: as `Target.compile`; files of batches compiled before are kept.
    """
    settings = candidate.compile
    shapes: list[Shape] = [(b, s) for b in settings.compiled_batches() for s in settings.compiled_lengths() or (None,)]
    parts = {shape: _stored(store, candidate, shape, key, counted=shape == shapes[-1]) for shape in shapes}
    for batch in settings.compiled_batches():
        bins = tuple(s for (b, s), part in parts.items() if b == batch and part is None)
        if not bins:
            continue
        place = to / f"compile-{batch}"
        place.mkdir()
        made = target.compile(lowered, _only(candidate, batch, bins), place)
        for file in made.files:
            if file.batch is not None:
                shape = (file.batch, file.sequence_bin)
                largest = file == [f for f in made.files if f.batch is not None][-1]
                parts[shape] = _keep(store, candidate, shape, key, place, made, file, counted=largest)
        shutil.rmtree(place)
    found = {shape: part for shape, part in parts.items() if part is not None}
    return _assembled(found, shapes, to)


def _only(candidate: Candidate, batch: int, bins: tuple[int | None, ...]) -> Candidate:
    """The same candidate for a part of its shapes."""
    lengths = tuple(s for s in bins if s is not None)
    return replace(
        candidate,
        compile=candidate.compile.for_shapes((batch,), lengths),
        serving=replace(candidate.serving, batch=batch),
    )


def _key(candidate: Candidate, shape: Shape, key: Mapping[str, object], *, counted: bool) -> dict[str, object]:
    return {**key, "compile": _only(candidate, shape[0], (shape[1],)).compile, "counted": counted}


def _stored(
    store: Store, candidate: Candidate, shape: Shape, key: Mapping[str, object], *, counted: bool
) -> Path | None:
    """Where the file of a shape lies; with its counts where they are needed, and with or without them elsewhere."""
    for with_counts in (True,) if counted else (True, False):
        entry = store.find(KIND, _key(candidate, shape, key, counted=with_counts))
        if entry is not None:
            return entry.path
    return None


def _keep(
    store: Store,
    candidate: Candidate,
    shape: Shape,
    key: Mapping[str, object],
    place: Path,
    made: Artifact,
    file: CompiledFile,
    *,
    counted: bool,
) -> Path:
    beside = [f for f in made.files if f.batch is None]

    def build(to: Path) -> None:
        for name in [file.file, *(f.file for f in beside)]:
            _link(place / name, to / name)
        for log in (f"{Path(file.file).stem}.log", *(_STORIES if counted else ())):
            if (place / log).exists():
                _link(place / log, to / log)
        part = replace(made, files=(file, *beside))
        (to / _PART).write_text(canonical_json(part), encoding="utf-8")

    return store.get_or_build(KIND, _key(candidate, shape, key, counted=counted), build).path


_STORIES = ("compile.json", "json.log")
"""What the compiler told beside the files; of the part that was counted."""


def _assembled(parts: Mapping[Shape, Path], shapes: list[Shape], to: Path) -> Artifact:
    """The set in `to`, its counts those of the largest shape."""
    told = {shape: _part(parts[shape]) for shape in shapes}
    for shape in shapes:
        for source in parts[shape].iterdir():
            wanted = shape == shapes[-1] or source.name not in _STORIES
            if source.name != _PART and wanted and not (to / source.name).exists():
                _link(source, to / source.name)
    last = told[shapes[-1]]
    files = tuple(file for shape in shapes for file in told[shape].files if file.batch is not None)
    return replace(last, files=(*files, *(file for file in last.files if file.batch is None)))


def _part(directory: Path) -> Artifact:
    data: Any = json.loads((directory / _PART).read_text(encoding="utf-8"))
    return decode(Artifact, data)


def _link(source: Path, target: Path) -> None:
    """One content, two names; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
