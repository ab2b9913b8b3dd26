"""From a candidate to its compiled artifact: calibrate, lower, compile, each step through the store.

Keys hold everything that can change the content: digests of model, data and settings, the toolchain, and the
digest of our own source that does the step. Candidates that lower to the same bytes share one compile; candidates
that differ only in serving settings share everything here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from workbench.evaluation.amct_record import amct_configuration, write_amct_record
from workbench.evaluation.journal import Journal
from workbench.evaluation.shared_shapes import compile_missing_shapes, shares_shapes
from workbench.evaluation.store import Store
from workbench.graph.groups import layer_groups
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import embedding_rows, load_graph
from workbench.inputs.dataset import check_inputs
from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import check_outputs
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.calibrate import derive_record, follow_amct
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.record import QuantizationRecord, read_record, write_record
from workbench.quantization.sensitivity import Sensitivity, measure_sensitivity, ranked
from workbench.quantization.statistics import Statistics, load_statistics, save_statistics
from workbench.targets import open_target
from workbench.targets.ascend.amct.installation import find_amct
from workbench.targets.ascend.amct.process import AmctInstallation
from workbench.targets.ascend.atc.config_files import config_texts
from workbench.targets.base import Target
from workbench.values.ascend_settings import ASCEND, AscendCompile
from workbench.values.candidate import EVERYTHING_INT8, Candidate, FloatUnit, Quantization
from workbench.values.documents.canonical import canonical_json, decode, encode, file_digest
from workbench.values.errors import CalibrationError, CandidateError, ConfigError, ToolchainError
from workbench.values.preprocess import check_vocabulary
from workbench.values.results import Artifact, Split, Toolchain
from workbench.values.system.source_closure import closure_digest

_log = logging.getLogger(__name__)

SENSITIVITY_SAMPLES = 48
SENSITIVITY_RECIPE = EVERYTHING_INT8
"""One ranking serves every recipe: which layers suffer most depends on the layer far more than on the clip rule
[inferred], and one ranking makes `keep_float` mean the same layers in every candidate of a sweep."""


PER_CHANNEL_TYPES = {ASCEND: ("Conv", "ConvTranspose")}
"""Target → operators whose weights may have one scale per channel there. On Ascend the weights of MatMul and Gemm
always have one scale (AMCT's configuration refuses another; amct.md, facts 4 and 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What evaluations share: the store, the sweep's journal, the opened targets and their toolchains.

    Attributes:
        targets, toolchains: by name, of every target of the experiment.
        report: receives (candidate, stage) when a stage begins.
        amct: the vendor's quantizer, where a target is Ascend and it is installed.
        modelled_ms: (candidate id, shapes of a feed) → time on an emulated device, which never changes.
    """

    store: Store
    journal: Journal
    targets: Mapping[str, Target]
    toolchains: Mapping[str, Toolchain]
    report: Callable[[Candidate, str], None]
    amct: AmctInstallation | None = None
    modelled_ms: dict[tuple[str, str], float] = field(default_factory=dict)

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
        ToolchainError: a target cannot be used on this machine, or some but not all of them are emulated.
    """
    targets = {name: open_target(name) for name in experiment.targets}
    toolchains = {name: target.toolchain() for name, target in targets.items()}
    if len({chain.emulated for chain in toolchains.values()}) > 1:
        emulated = ", ".join(name for name, chain in toolchains.items() if chain.emulated)
        raise ToolchainError(
            f"{emulated} is emulated here, and modelled times are never compared with measured ones. Sweep it in an "
            "experiment of its own, or on the device."
        )
    check_data(experiment)
    amct = find_amct(os.environ) if ASCEND in targets else None
    return Bench(store=store, journal=journal, targets=targets, toolchains=toolchains, report=report, amct=amct)


def check_data(experiment: Experiment) -> None:
    """Compare data, tokenizer and labels with the model before any work.

    Raises:
        ConfigError: an input, the number of classes or the vocabulary does not fit.
    """
    data, model = experiment.dataset, experiment.model
    check_inputs(data, model)
    _check_bins(experiment)
    _check_compiled_lengths(experiment)
    check_outputs(data.task, data.labels, model)
    if data.preprocessor is not None:
        rows = embedding_rows(load_graph(model))
        for token_input in data.preprocessor.inputs:
            if token_input.role == "ids" and token_input.name in rows:
                check_vocabulary(data.preprocessor, rows[token_input.name])


def _check_bins(experiment: Experiment) -> None:
    """A model exported for one length can be padded to no other."""
    sizes = (spec.shape[1] for spec in experiment.model.inputs if len(spec.shape) > 1)
    fixed = next((size for size in sizes if isinstance(size, int)), None)
    for parameter in experiment.space.parameters if fixed is not None else ():
        if parameter.name == "serving.sequence_bins" and parameter.choices != (str(fixed),):
            raise ConfigError(
                f"the model takes texts of {fixed} tokens and no others.",
                file=experiment.space.path,
                key=f"parameters.{parameter.name}",
                hint="Leave it out, or export the model with a dynamic length.",
            )


def _check_compiled_lengths(experiment: Experiment) -> None:
    """Arrays have one length, and run in the smallest compiled one that holds it: one must, and others are no use."""
    lengths = _array_lengths(experiment)
    for parameter in experiment.space.parameters if lengths else ():
        if parameter.name != "compile.sequence_bins":
            continue
        for choice in parameter.choices:
            bins = [int(word) for word in str(choice).split()]
            if bins[-1] < max(lengths):
                raise ConfigError(
                    f"no length of {str(choice)!r} holds the dataset's samples, arrays of length {max(lengths)}.",
                    file=experiment.space.path,
                    key=f"parameters.{parameter.name}",
                    hint=f"Add {max(lengths)}.",
                )
            used = {min(found for found in bins if found >= length) for length in lengths}
            if unused := [found for found in bins if found not in used]:
                _log.warning(
                    "%s: parameters.%s: every sample is an array of length %s, so of '%s' nothing ever runs in %s: "
                    "compiled and loaded for nothing.",
                    experiment.space.path,
                    parameter.name,
                    " or ".join(map(str, sorted(lengths))),
                    choice,
                    " and ".join(map(str, unused)),
                )


def _array_lengths(experiment: Experiment) -> set[int]:
    """Lengths of the splits' samples, where these are arrays and the model takes any length; else none."""
    free = {s.name for s in experiment.model.inputs if len(s.shape) > 1 and not isinstance(s.shape[1], int)}
    data = experiment.dataset
    sources = [rows.source for rows in (data.calibration, data.validation, data.holdout)]
    return {
        array.shape[1]
        for source in sources
        if isinstance(source, ArrayRows)
        for name, array in source.inputs
        if name in free
    }


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
    record = None
    if candidate.quantization.calibrated:
        with clock.stage("calibrate"):
            record = record_of(experiment, candidate, bench, clock)
            write_record(record, bench.journal.record(candidate.id, split))
    with clock.stage("lower"):
        lowered = _lowered(experiment, candidate, bench, record, clock)
    with clock.stage("compile"):
        return _compiled(candidate, bench, lowered, clock)


def record_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock | None = None
) -> QuantizationRecord:
    """The record a calibrated candidate is lowered with.

    Derived in milliseconds once the statistics are there, unless the recipe learns rounding, corrects biases or
    follows an AMCT configuration: those read the data again, and their records are kept in the store.

    Raises:
        CandidateError: the model cannot be calibrated, or the configuration does not fit it.
    """
    clock = clock or StageClock()
    q = candidate.quantization
    config = amct_configuration(
        candidate,
        experiment.model,
        bench.amct,
        lambda: (
            kept_in_float(experiment, candidate, bench, statistics_of(experiment, bench, StageClock()))
            if q.keep_float
            else ()
        ),
        _batch_count(experiment),
    )
    if config is not None:
        return _record_by_amct(experiment, candidate, bench, clock, config)
    if q.scheme == "cfg":
        return _stored_record(experiment, bench, clock, {"cfg": q.cfg}, lambda: _by_configuration(experiment, q))
    statistics = statistics_of(experiment, bench, clock)
    kept = kept_in_float(experiment, candidate, bench, statistics)
    recipe = recipe_of(q, statistics.layers, kept, per_channel_types=PER_CHANNEL_TYPES.get(candidate.target))

    def derive() -> QuantizationRecord:
        def observe_variant(proto: ModelProto, variant: str) -> Statistics:
            return statistics_of(experiment, bench, StageClock(), proto=proto, variant=variant)

        return derive_record(
            experiment.model, recipe, statistics, _batches(experiment), observe_variant=observe_variant
        )

    if q.bias_correction or q.weight_algorithm == "adaround":
        key = {"statistics": statistics.digest, "quantization": q, "float_layers": kept}
        return _stored_record(experiment, bench, clock, key, derive)
    return derive()


def _record_by_amct(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock, config: str
) -> QuantizationRecord:
    amct = bench.amct
    assert amct is not None  # who gave a configuration had it
    key = {**_data_key(experiment), "amct": encode(replace(amct, variables={})), "config": config}
    key["code"] = closure_digest("workbench.evaluation.amct_record", "workbench.inputs.dataset", alone=(__name__,))

    def build(to: Path) -> None:
        with _log_kept(bench, candidate):
            write_amct_record(experiment.model, config, _batches(experiment), to, amct)

    entry = bench.store.get_or_build("record", key, build)
    clock.cached = entry.cached
    return read_record(entry.path / "record.json")


def _batch_count(experiment: Experiment) -> int:
    return -(-experiment.calibration.samples // experiment.calibration.batch)


def _by_configuration(experiment: Experiment, quantization: Quantization) -> QuantizationRecord:
    assert quantization.cfg is not None
    config = parse_config(quantization.cfg, file="quantization.cfg")
    proto = normalized(load_graph(experiment.model))
    try:
        recipe = recipe_of_config(config, quantizable_layers(proto))
    except ConfigError as error:  # what it names is this model's affair, so it is this candidate that fails
        raise CalibrationError(str(error)) from error
    batch, available = experiment.calibration.batch, _batch_count(experiment)
    if config.batch_num > available:
        raise CalibrationError(
            f"the configuration asks for {config.batch_num} batches, calibration.samples of {experiment.path.name} "
            f"gives {available} of {batch}. Raise it, or lower batch_num."
        )

    def batches() -> Iterator[Feeds]:
        yield from itertools.islice(_batches(experiment)(), config.batch_num)

    try:
        return follow_amct(experiment.model, recipe, batches)
    except ValueError as error:
        raise CalibrationError(f"the configuration does not fit the model: {error}") from error


def _stored_record(
    experiment: Experiment,
    bench: Bench,
    clock: StageClock,
    recipe: Mapping[str, object],
    derive: Callable[[], QuantizationRecord],
) -> QuantizationRecord:
    key = {**_data_key(experiment), **recipe}
    entry = bench.store.get_or_build("record", key, lambda to: write_record(derive(), to / "record.json"))
    clock.cached = entry.cached
    return read_record(entry.path / "record.json")


def _data_key(experiment: Experiment) -> dict[str, object]:
    return {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "settings": experiment.calibration,
        "onnxruntime": version("onnxruntime"),  # it runs the float model, whatever the candidates' target
        "code": closure_digest(
            "workbench.quantization", "workbench.graph.groups", "workbench.inputs.dataset", alone=(__name__,)
        ),
    }


def _batches(experiment: Experiment) -> Callable[[], Iterator[Feeds]]:
    settings = experiment.calibration
    return lambda: (b.feeds for b in experiment.dataset.batches("calibration", settings.batch, stop=settings.samples))


def statistics_of(
    experiment: Experiment, bench: Bench, clock: StageClock, *, proto: ModelProto | None = None, variant: str = ""
) -> Statistics:
    """One observing pass over the calibration samples; shared by every static candidate.

    Args:
        proto, variant: a changed graph and its name (a balanced one); the model itself without.
    """

    def build(to: Path) -> None:
        statistics = observe(experiment.model, _batches(experiment)(), proto=proto, variant=variant)
        save_statistics(statistics, to / "statistics.npz")

    entry = bench.store.get_or_build("statistics", _statistics_key(experiment, variant), build)
    clock.cached = entry.cached
    return load_statistics(entry.path / "statistics.npz")


def observed_statistics(experiment: Experiment, bench: Bench) -> Statistics | None:
    """The float model's statistics where some candidate needed them already; never observes."""
    entry = bench.store.find("statistics", _statistics_key(experiment, ""))
    return None if entry is None else load_statistics(entry.path / "statistics.npz")


def _statistics_key(experiment: Experiment, variant: str) -> dict[str, object]:
    return {**_data_key(experiment), "variant": variant}


def sensitivity_of(
    experiment: Experiment, bench: Bench, statistics: Statistics, unit: FloatUnit
) -> tuple[Sensitivity, ...]:
    """Every layer, or every group of layers, quantized alone over a few calibration samples; in graph order."""
    key = {
        **_data_key(experiment),
        "statistics": statistics.digest,
        "samples": SENSITIVITY_SAMPLES,
        "recipe": SENSITIVITY_RECIPE,
        "unit": unit,
    }

    def build(to: Path) -> None:
        batches = experiment.dataset.batches("calibration", experiment.calibration.batch, stop=SENSITIVITY_SAMPLES)
        recipe = recipe_of(SENSITIVITY_RECIPE, statistics.layers)
        units = None
        if unit == "group":
            units = groups_of(normalized(load_graph(experiment.model)), statistics.layers, recipe)
        found = measure_sensitivity(experiment.model, statistics, recipe, (b.feeds for b in batches), units)
        (to / "sensitivity.json").write_text(canonical_json(list(found)), encoding="utf-8")

    entry = bench.store.get_or_build("sensitivity", key, build)
    data = json.loads((entry.path / "sensitivity.json").read_text(encoding="utf-8"))
    return decode(tuple[Sensitivity, ...], data)


def groups_of(proto: ModelProto, layers: Sequence[Layer], recipe: ModelRecipe) -> dict[str, tuple[str, ...]]:
    """Group → its layers that the recipe quantizes, groups without any left out."""
    groups = layer_groups(proto, layers)
    found = {name: tuple(layer for layer in members if layer in recipe.layers) for name, members in groups.items()}
    return {name: members for name, members in found.items() if members}


def kept_in_float(
    experiment: Experiment, candidate: Candidate, bench: Bench, statistics: Statistics
) -> tuple[str, ...]:
    """Layers that a static candidate keeps in float, most sensitive unit first.

    Raises:
        CalibrationError: it asks for more units than the model has, or for a ranking the model does not allow.
    """
    q = candidate.quantization
    if not q.keep_float:
        return ()
    assert q.keep_float_unit is not None
    assert q.sensitivity is not None
    applicable = recipe_of(q, statistics.layers).layers
    found = sensitivity_of(experiment, bench, statistics, q.keep_float_unit)
    try:
        ranking = [unit for unit in ranked(found, q.sensitivity) if any(name in applicable for name in unit.layers)]
    except ValueError as error:
        raise CalibrationError(str(error)) from error
    if q.keep_float > len(ranking):
        raise CalibrationError(
            f"{q.keep_float} {q.keep_float_unit}s are to stay in float, the model has {len(ranking)}. Lower keep_float."
        )
    return tuple(name for unit in ranking[: q.keep_float] for name in unit.layers if name in applicable)


def lowered_file(experiment: Experiment, candidate: Candidate, bench: Bench) -> Path:
    """The candidate's model as its target's compiler takes it: from the store, or made now.

    Raises:
        CandidateError: it cannot be calibrated or lowered.
    """
    record = record_of(experiment, candidate, bench) if candidate.quantization.calibrated else None
    return _lowered(experiment, candidate, bench, record, StageClock())


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
        "code": closure_digest(type(bench.target(candidate)).__module__, alone=(__name__,)),
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
        with _log_kept(bench, candidate):
            if shares_shapes(candidate):
                artifact = compile_missing_shapes(candidate, target, lowered, to, bench.store, shared)
            else:
                artifact = target.compile(lowered, candidate, to)
        (to / "artifact.json").write_text(canonical_json(artifact), encoding="utf-8")

    entry = bench.store.get_or_build("artifact", key, build)
    clock.cached = entry.cached
    data = json.loads((entry.path / "artifact.json").read_text(encoding="utf-8"))
    return decode(Artifact, data), entry.path


def _handed(candidate: Candidate) -> dict[str, tuple[str, str]]:
    """The texts of the files that the compiler reads beside the model: flag → (file name, content)."""
    if not isinstance(candidate.compile, AscendCompile):
        return {}
    try:
        return config_texts(candidate.compile)
    except ConfigError:
        return {}  # the compile itself fails of it, and says so


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
