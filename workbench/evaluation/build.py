"""From a candidate to its compiled artifact: calibrate, lower, compile, each step through the store.

Keys hold everything that can change the content: digests of model, data and settings, the toolchain, and the
digest of our own source that does the step. Candidates that lower to the same bytes share one compile; candidates
that differ only in serving settings share everything here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from workbench.evaluation.bench import Bench, StageClock, log_kept
from workbench.evaluation.record import record_of
from workbench.evaluation.store import Store
from workbench.graph.write import link_or_copy
from workbench.inputs.dataset.language import samples
from workbench.inputs.experiment import Experiment
from workbench.quantization.record import QuantizationRecord, write_record
from workbench.targets.base import CompilesEach, Target
from workbench.targets.classes import structure_class
from workbench.targets.language import LanguageTarget, language_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, decode, file_digest
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.system.cpu import this_cpu
from workbench.values.system.source_closure import closure_digest


def artifact_of(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    clock: StageClock | None = None,
    *,
    split: Split | None = None,
) -> tuple[Artifact, Path]:
    """The compiled candidate and the directory of its files.

    Args:
        split: of the evaluation whose record this is; None outside of an evaluation.

    Raises:
        CandidateError: it cannot be calibrated, lowered or compiled.
    """
    clock = clock or StageClock()
    if experiment.model.is_language_model:
        return checkpoint_of(experiment, candidate, bench, clock)
    record = None
    if candidate.quantization.calibrated:
        with clock.stage("calibrate"):
            record = record_of(experiment, candidate, bench, clock)
            write_record(record, bench.journal.record(candidate.id, split))
    with clock.stage("lower"):
        lowered = _lowered(experiment, candidate, bench, record, clock)
    with clock.stage("compile"):
        return _compiled(candidate, bench, lowered, clock)


def lowered_file(experiment: Experiment, candidate: Candidate, bench: Bench) -> Path:
    """The candidate's model as its target's compiler takes it: from the store, or made now.

    Raises:
        CandidateError: it cannot be calibrated or lowered.
    """
    record = record_of(experiment, candidate, bench) if candidate.quantization.calibrated else None
    return _lowered(experiment, candidate, bench, record, StageClock())


def structure_of(experiment: Experiment, candidate: Candidate, bench: Bench) -> str:
    """See `structure_class`; kept in the store, since finding it reads the lowered model."""
    lowered, target = lowered_file(experiment, candidate, bench), bench.target(candidate)
    settings = candidate.compile.for_shapes((1,), ()) if shares_shapes(candidate) else candidate.compile
    key = {
        "lowered": file_digest(lowered),
        "precision": candidate.precision,
        "compile": settings,
        "code": closure_digest(type(target).__module__, "workbench.targets.classes", alone=(__name__,)),
    }
    return str(bench.store.json_of("structure", key, lambda: structure_class(target, lowered, candidate)))


def _lowered(
    experiment: Experiment, candidate: Candidate, bench: Bench, record: QuantizationRecord | None, clock: StageClock
) -> Path:
    q = candidate.quantization
    key = {
        "model": experiment.model.sha256,
        "record": record.digest if record else None,
        "dynamic": q.weight_granularity if q.scheme == "dynamic" else None,
        "target": candidate.target,
        "onnx": version("onnx"),
        "processor": this_cpu().kind,
        "code": closure_digest(type(bench.target(candidate)).__module__, alone=(__name__,)),
    }

    def build(to: Path) -> None:
        with log_kept(bench, candidate):
            file = bench.target(candidate).lower(experiment.model, candidate, record, to)
        (to / "lowered.json").write_text(canonical_json({"file": file.relative_to(to).as_posix()}), encoding="utf-8")

    entry = bench.store.get_or_build("lowered", key, build)
    clock.cached = entry.cached
    file: str = json.loads((entry.path / "lowered.json").read_text(encoding="utf-8"))["file"]
    return entry.path / file


def _compiled(candidate: Candidate, bench: Bench, lowered: Path, clock: StageClock) -> tuple[Artifact, Path]:
    shared = {
        "lowered": file_digest(lowered),
        "precision": candidate.precision,
        "scheme": candidate.quantization.scheme,
        "toolchain": bench.toolchain(candidate),
        "handed": _handed(candidate),
        "code": closure_digest(type(bench.target(candidate)).__module__, alone=(__name__,)),
    }
    key = {**shared, "compile": candidate.compile}

    def build(to: Path) -> None:
        target = bench.target(candidate)
        with log_kept(bench, candidate):
            if shares_shapes(candidate):
                artifact = compile_missing_shapes(candidate, target, lowered, to, bench.store, shared, clock.made_file)
            else:
                artifact = target.compile(lowered, candidate, to)
                clock.compiled = int(candidate.compile.compiles_shapes)
        (to / "artifact.json").write_text(canonical_json(artifact), encoding="utf-8")

    entry = bench.store.get_or_build("artifact", key, build)
    clock.cached = entry.cached
    data = json.loads((entry.path / "artifact.json").read_text(encoding="utf-8"))
    if candidate.compile.compiles_shapes:
        files = len(shapes_of(candidate)) if shares_shapes(candidate) else 1
        clock.shared = files - clock.compiled
    return decode(Artifact, data), entry.path


def _handed(candidate: Candidate) -> Mapping[str, tuple[str, str]]:
    """The texts of the files that the compiler reads beside the model."""
    try:
        return candidate.compile.handed_files()
    except ConfigError:
        return {}  # the compile itself fails of it, and says so


# --- one compile for each fixed shape, shared by all candidates that differ only in which shapes they hold ------------
#
# A compiler that fixes every shape makes a set of files for each candidate. Files of the same settings and shape are
# the same file, and a compile may take minutes; so each file has its own entry in the store, kept the moment it is
# complete, and a set takes from there what any set already has. A kill loses the files in flight and no other.

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
    parts = {shape: store.find(KIND, _part_key(candidate, shape, key)) for shape in shapes}
    missing = [shape for shape, part in parts.items() if part is None]
    for group in _rectangles(missing):
        place = to / "compile"
        place.mkdir()

        def keep(made: Artifact, folder: Path) -> None:
            (file,) = [f for f in made.files if f.batch is not None]
            entry_key = _part_key(candidate, (file.batch or 1, file.sequence_bin), key)

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
    parts |= {shape: store.find(KIND, _part_key(candidate, shape, key)) for shape in missing}
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


def _part_key(candidate: Candidate, shape: Shape, key: Mapping[str, object]) -> dict[str, object]:
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


# --- of language models: what is sensitive is ranked once, and every recipe has a pass of its own --------------------


def checkpoint_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock
) -> tuple[Artifact, Path]:
    """A candidate's checkpoint and its folder; of the float baseline the model's own.

    Raises:
        CandidateError: the recipe does not fit the model.
        ConfigError: there is too little memory or disk for it.
    """
    target = language_target(bench.target(candidate))
    if candidate.quantization.scheme == "none":
        own = experiment.model.path
        return target.write_checkpoint(experiment.model, candidate, (), dict, own), own
    chosen = samples(experiment.dataset, experiment.calibration.samples)

    def build(to: Path) -> None:
        with log_kept(bench, candidate):
            artifact = target.write_checkpoint(
                experiment.model, candidate, chosen, lambda: ranking_of(experiment, bench, target), to
            )
        (to / "artifact.json").write_text(canonical_json(artifact), encoding="utf-8")

    with clock.stage("calibrate"):
        key = {**_key(experiment, bench, target), "recipe": candidate.compile}
        entry = bench.store.get_or_build("checkpoint", key, build)
        clock.cached = entry.cached
    data = json.loads((entry.path / "artifact.json").read_text(encoding="utf-8"))
    return decode(Artifact, data), entry.path


def ranking_of(experiment: Experiment, bench: Bench, target: LanguageTarget) -> Mapping[str, float]:
    """How much each group of linears of each block hurts when it alone is quantized, the worst first."""

    def rank() -> list[tuple[str, float]]:
        chosen = samples(experiment.dataset, experiment.calibration.samples)
        return list(target.rank(experiment.model, chosen).items())

    found = bench.store.json_of("language_ranking", _key(experiment, bench, target), rank)
    return {str(name): float(error) for name, error in found}


def _key(experiment: Experiment, bench: Bench, target: LanguageTarget) -> dict[str, object]:
    return {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "samples": experiment.calibration.samples,
        "toolchain": bench.toolchains[target.name],
        "code": closure_digest(type(target).__module__, alone=(__name__,)),
    }
