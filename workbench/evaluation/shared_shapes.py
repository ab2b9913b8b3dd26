"""One compile for each fixed shape, shared by all candidates that differ only in which shapes they hold.

A compiler that fixes every shape makes a set of files for each candidate. Files of the same settings and shape are the
same file, and a compile may take minutes; so each file has its own entry in the store, kept the moment it is complete,
and a set takes from there what any set already has. A kill loses the files in flight and no other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.evaluation.store import Store
from workbench.graph.write import link_or_copy
from workbench.targets.base import CompilesEach, Target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, decode

KIND = "om"
_PART = "part.json"

Shape = tuple[int, int | None]
"""Batch and padded length of one file."""


def shares_shapes(candidate: Candidate) -> bool:
    """Whether the candidate's artifact is a set of files that other sets may hold too."""
    return candidate.compile.one_file_a_shape()


def shapes_of(candidate: Candidate) -> tuple[Shape, ...]:
    """The files of its set, the largest last."""
    settings = candidate.compile
    return tuple((b, s) for b in settings.compiled_batches() for s in settings.compiled_lengths() or (None,))


def compile_missing_shapes(
    candidate: Candidate,
    target: Target,
    lowered: Path,
    to: Path,
    store: Store,
    key: Mapping[str, object],
    compiled: Callable[[], None] = lambda: None,
) -> Artifact:
    """The candidate's artifact in `to`: files that the store has, and the rest compiled now; the counts are those of
    the largest shape.

    Args:
        key: everything besides the candidate's compile part that decides a file's content.
        compiled: told of every file that was compiled, once it is in the store.

    Raises:
        CompileError: as `Target.compile`; files that were complete by then are kept.
    """
    shapes = shapes_of(candidate)
    parts = {shape: store.find(KIND, _key(candidate, shape, key)) for shape in shapes}
    missing = [shape for shape, part in parts.items() if part is None]
    for group in _rectangles(missing):
        place = to / "compile"
        place.mkdir()

        def keep(made: Artifact, folder: Path) -> None:
            (file,) = [f for f in made.files if f.batch is not None]
            entry_key = _key(candidate, (file.batch or 1, file.sequence_bin), key)

            def write(to: Path) -> None:
                for one in (one for one in folder.iterdir() if one.is_file()):
                    link_or_copy(one, to / one.name)
                (to / _PART).write_text(canonical_json(made), encoding="utf-8")

            store.get_or_build(KIND, entry_key, write)
            compiled()

        one = only_shapes(candidate, group)
        if isinstance(target, CompilesEach):
            target.compile_each(lowered, one, place, keep)
        else:
            for number, shape in enumerate(shapes_of(one)):
                (folder := place / str(number)).mkdir()
                keep(target.compile(lowered, only_shapes(one, [shape]), folder), folder)
        shutil.rmtree(place)
    parts |= {shape: store.find(KIND, _key(candidate, shape, key)) for shape in missing}
    return _assembled({shape: entry.path for shape, entry in parts.items() if entry is not None}, shapes, to)


def _rectangles(missing: list[Shape]) -> list[list[Shape]]:
    """Shapes in groups that are every batch with every length of the group, as a target is asked for them: batches
    that miss the same lengths go together, so that all of a new set is compiled side by side."""
    lengths: dict[int, list[int | None]] = {}
    for batch, length in missing:
        lengths.setdefault(batch, []).append(length)
    groups: dict[tuple[int | None, ...], list[int]] = {}
    for batch, bins in lengths.items():
        groups.setdefault(tuple(bins), []).append(batch)
    return [[(batch, length) for batch in batches for length in bins] for bins, batches in groups.items()]


def only_shapes(candidate: Candidate, shapes: Sequence[Shape]) -> Candidate:
    """The same candidate for a part of its shapes."""
    batches = tuple(dict.fromkeys(batch for batch, _ in shapes))
    lengths = tuple(dict.fromkeys(s for _, s in shapes if s is not None))
    return replace(
        candidate,
        compile=candidate.compile.for_shapes(batches, lengths),
        serving=replace(candidate.serving, batch=batches[-1]),
    )


def _key(candidate: Candidate, shape: Shape, key: Mapping[str, object]) -> dict[str, object]:
    return {**key, "compile": only_shapes(candidate, [shape]).compile}


def _assembled(parts: Mapping[Shape, Path], shapes: tuple[Shape, ...], to: Path) -> Artifact:
    """The set in `to`, its counts those of the largest shape."""
    told = {shape: decode(Artifact, json.loads((parts[shape] / _PART).read_text(encoding="utf-8"))) for shape in shapes}
    for shape in reversed(shapes):  # of a name that every part has, the largest one's file
        for source in parts[shape].iterdir():
            if source.name != _PART and not (to / source.name).exists():
                link_or_copy(source, to / source.name)
    last = told[shapes[-1]]
    files = tuple(file for shape in shapes for file in told[shape].files if file.batch is not None)
    return replace(last, files=(*files, *(file for file in last.files if file.batch is None)))
