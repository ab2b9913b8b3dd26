"""From a candidate to its compiled artifact: calibrate, lower, compile, each step through the store.

Keys hold everything that can change the content: digests of model, data and settings, the toolchain, and the
digest of our own source that does the step. Candidates that lower to the same bytes share one compile; candidates
that differ only in serving settings share everything here.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from workbench.candidate import EVERYTHING_INT8, Candidate
from workbench.canonical import canonical_json, decode, file_digest, source_digest
from workbench.dataset import check_inputs
from workbench.errors import CandidateError
from workbench.experiment import Experiment
from workbench.graph import embedding_rows, load_graph
from workbench.journal import Journal
from workbench.metrics import check_outputs
from workbench.preprocess import check_vocabulary
from workbench.quantization.algorithms import choose
from workbench.quantization.observe import Statistics, load_statistics, observe, save_statistics
from workbench.quantization.record import QuantizationRecord, write_record
from workbench.quantization.sensitivity import rank_layers
from workbench.results import Artifact, Toolchain
from workbench.store import Store
from workbench.targets import open_target
from workbench.targets.base import Target

SENSITIVITY_SAMPLES = 48
SENSITIVITY_RECIPE = EVERYTHING_INT8
"""One ranking serves every recipe: which layers suffer most depends on the layer far more than on the clip rule
[inferred], and one ranking makes `keep_float` mean the same layers in every candidate of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What evaluations share: the store, the sweep's journal, the opened targets and their toolchains.

    Attributes:
        targets, toolchains: by name, of every target of the experiment.
        report: receives (candidate, stage) when a stage begins.
    """

    store: Store
    journal: Journal
    targets: Mapping[str, Target]
    toolchains: Mapping[str, Toolchain]
    report: Callable[[Candidate, str], None]

    def target(self, candidate: Candidate) -> Target:
        return self.targets[candidate.target]

    def toolchain(self, candidate: Candidate) -> Toolchain:
        return self.toolchains[candidate.target]

    @property
    def device_lock(self) -> Path:
        """File locked while anything is timed, so that two sweeps of one workspace never time at once."""
        return self.store.root / ".locks" / "device.lock"


class StageClock:
    """Says when a stage begins and whether its result came from the store; `evaluate` turns it into timings."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageClock]:
        yield self

    cached = False


def open_bench(
    experiment: Experiment, journal: Journal, store: Store, report: Callable[[Candidate, str], None]
) -> Bench:
    """Open the experiment's targets and check its data against its model, before any work.

    Raises:
        ConfigError: the dataset does not fit the model.
        ToolchainError: a target cannot be used on this machine.
    """
    targets = {name: open_target(name) for name in experiment.targets}
    toolchains = {name: target.toolchain() for name, target in targets.items()}
    check_data(experiment)
    return Bench(store=store, journal=journal, targets=targets, toolchains=toolchains, report=report)


def check_data(experiment: Experiment) -> None:
    """Compare data, tokenizer and labels with the model before any work.

    Raises:
        ConfigError: an input, the number of classes or the vocabulary does not fit.
    """
    data, model = experiment.dataset, experiment.model
    check_inputs(data, model)
    check_outputs(data.task, data.labels, model)
    if data.preprocessor is not None:
        rows = embedding_rows(load_graph(model))
        for token_input in data.preprocessor.inputs:
            if token_input.role == "ids" and token_input.name in rows:
                check_vocabulary(data.preprocessor, rows[token_input.name])


def artifact_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock | None = None
) -> tuple[Artifact, Path]:
    """The compiled candidate and the directory of its files.

    Raises:
        CandidateError: it cannot be calibrated, lowered or compiled.
    """
    clock = clock or StageClock()
    record = None
    if candidate.quantization.calibrated:
        with clock.stage("calibrate"):
            record = record_of(experiment, candidate, bench, clock)
            write_record(record, bench.journal.record(candidate.id))
    with clock.stage("lower"):
        lowered = _lowered(experiment, candidate, bench, record, clock)
    with clock.stage("compile"):
        return _compiled(candidate, bench, lowered, clock)


def record_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock | None = None
) -> QuantizationRecord:
    """The record a static candidate is lowered with: derived in milliseconds once the statistics are there."""
    clock = clock or StageClock()
    statistics = statistics_of(experiment, bench, clock)
    ranking = sensitivity_of(experiment, bench, statistics) if candidate.quantization.keep_float else ()
    return choose(statistics, candidate.quantization, ranking)


def statistics_of(experiment: Experiment, bench: Bench, clock: StageClock) -> Statistics:
    """One observing pass over the calibration samples; shared by every static candidate."""
    settings = experiment.calibration
    key = {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "settings": settings,
        "onnxruntime": version("onnxruntime"),  # it runs the float model, whatever the candidates' target
        "code": source_digest("quantization", "graph", "dataset", "preprocess"),
    }

    def build(to: Path) -> None:
        batches = experiment.dataset.batches("calibration", settings.batch, stop=settings.samples)
        save_statistics(observe(experiment.model, (batch.feeds for batch in batches)), to / "statistics.npz")

    entry = bench.store.get_or_build("statistics", key, build)
    clock.cached = entry.cached
    return load_statistics(entry.path / "statistics.npz")


def sensitivity_of(experiment: Experiment, bench: Bench, statistics: Statistics) -> tuple[str, ...]:
    """Quantizable layers, most sensitive first, from quantizing one at a time over a few calibration samples."""
    key = {
        "statistics": statistics.digest,
        "data": experiment.dataset.digest("calibration"),
        "samples": SENSITIVITY_SAMPLES,
        "batch": experiment.calibration.batch,
        "recipe": SENSITIVITY_RECIPE,
        "code": source_digest("quantization", "graph", "dataset", "preprocess"),
    }

    def build(to: Path) -> None:
        batches = experiment.dataset.batches("calibration", experiment.calibration.batch, stop=SENSITIVITY_SAMPLES)
        ranking = rank_layers(experiment.model, statistics, SENSITIVITY_RECIPE, [b.feeds for b in batches])
        (to / "ranking.json").write_text(canonical_json(list(ranking)), encoding="utf-8")

    entry = bench.store.get_or_build("sensitivity", key, build)
    ranking = json.loads((entry.path / "ranking.json").read_text(encoding="utf-8"))
    return tuple(str(item["layer"]) for item in ranking)


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
        "code": source_digest("quantization", "graph", "targets"),
    }

    def build(to: Path) -> None:
        with _log_kept(bench, candidate):
            file = bench.target(candidate).lower(experiment.model, candidate, record, to)
        (to / "lowered.json").write_text(canonical_json({"file": file.relative_to(to).as_posix()}), encoding="utf-8")

    entry = bench.store.get_or_build("lowered", key, build)
    clock.cached = entry.cached
    file: str = json.loads((entry.path / "lowered.json").read_text(encoding="utf-8"))["file"]
    return entry.path / file


def _compiled(candidate: Candidate, bench: Bench, lowered: Path, clock: StageClock) -> tuple[Artifact, Path]:
    key = {
        "lowered": file_digest(lowered),
        "precision": candidate.precision,
        "scheme": candidate.quantization.scheme,
        "compile": candidate.compile,
        "toolchain": bench.toolchain(candidate),
        "code": source_digest("targets"),
    }

    def build(to: Path) -> None:
        with _log_kept(bench, candidate):
            artifact = bench.target(candidate).compile(lowered, candidate, to)
        (to / "artifact.json").write_text(canonical_json(artifact), encoding="utf-8")

    entry = bench.store.get_or_build("artifact", key, build)
    clock.cached = entry.cached
    data = json.loads((entry.path / "artifact.json").read_text(encoding="utf-8"))
    return decode(Artifact, data), entry.path


@contextlib.contextmanager
def _log_kept(bench: Bench, candidate: Candidate) -> Iterator[None]:
    """Move a failing tool's log into the journal: the directory it wrote into goes away with the failed build."""
    try:
        yield
    except CandidateError as error:
        if error.log_path is not None and error.log_path.exists():
            kept = bench.journal.log(candidate.id)
            shutil.copyfile(error.log_path, kept)
            error.log_path = kept
        raise
