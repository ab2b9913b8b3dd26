"""From a candidate to its compiled artifact: calibrate, lower, compile, each step through the store.

Keys hold everything that can change the content: digests of model, data and settings, the toolchain, and the
digest of our own source that does the step. Candidates that lower to the same bytes share one compile; candidates
that differ only in serving settings share everything here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from workbench.evaluation.bench import Bench, StageClock, log_kept
from workbench.evaluation.record import record_of
from workbench.evaluation.shared_shapes import compile_missing_shapes, shapes_of, shares_shapes
from workbench.inputs.dataset.language import samples
from workbench.inputs.experiment import Experiment
from workbench.quantization.record import QuantizationRecord, write_record
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
        "code": closure_digest(
            type(bench.target(candidate)).__module__, alone=("workbench.evaluation.shared_shapes", __name__)
        ),
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
