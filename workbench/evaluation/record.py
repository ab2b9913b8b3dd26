"""The record that a calibrated candidate is lowered with: derived from statistics, or kept in the store.

Two ways besides the native engine: a vendor's configuration followed by our code, and the vendor's own quantizer, where
the target has one that is installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from workbench.evaluation.bench import Bench, StageClock, log_kept
from workbench.evaluation.carried import calibration_feeds
from workbench.graph.groups import layer_groups
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.amct.config import parse_config, recipe_of_config
from workbench.quantization.calibrate import derive_record, follow_amct
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.record import QuantizationRecord, read_record, write_record
from workbench.quantization.sensitivity import Sensitivity, measure_sensitivity, ranked
from workbench.quantization.statistics import Statistics, load_statistics, save_statistics
from workbench.targets import described
from workbench.values.candidate import EVERYTHING_INT8, Candidate, FloatUnit, Quantization
from workbench.values.documents.canonical import decode
from workbench.values.errors import CalibrationError, ConfigError
from workbench.values.system.source_closure import closure_digest


def record_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock | None = None
) -> QuantizationRecord:
    """The record a calibrated candidate is lowered with.

    Derived in milliseconds once the statistics are there, unless the recipe learns rounding, corrects biases or
    follows a vendor's configuration: those read the data again, and their records are kept in the store.

    Raises:
        CandidateError: the model cannot be calibrated, or the configuration does not fit it.
    """
    clock = clock or StageClock()
    q = candidate.quantization

    def ours(recipe: Mapping[str, object], make: Callable[[], QuantizationRecord]) -> QuantizationRecord:
        key = {**data_key(experiment), **recipe}
        return _stored(bench, clock, key, lambda to: write_record(make(), to / "record.json"))

    calibrator = bench.calibrators.get(candidate.target)
    if calibrator is not None:
        config = calibrator.configuration(candidate)
        if config is not None:
            key = {**data_key(experiment), "calibrator": calibrator.identity(), "config": config}
            key["code"] = closure_digest(type(calibrator).__module__, "workbench.inputs.dataset", alone=(__name__,))

            def build(to: Path) -> None:
                with log_kept(bench, candidate):
                    calibrator.write_record(experiment.model, config, calibration_batches(experiment), to)

            return _stored(bench, clock, key, build)
    if q.scheme == "cfg":
        return ours({"cfg": q.cfg}, lambda: _by_configuration(experiment, q))
    statistics = statistics_of(experiment, bench, clock)
    kept = kept_in_float(experiment, candidate, bench, statistics)
    per_channel = described(candidate.target).per_channel_types
    recipe = recipe_of(q, statistics.layers, kept, per_channel_types=per_channel)

    def derive() -> QuantizationRecord:
        def observe_variant(proto: ModelProto, variant: str) -> Statistics:
            return statistics_of(experiment, bench, StageClock(), proto=proto, variant=variant)

        return derive_record(
            experiment.model, recipe, statistics, calibration_batches(experiment), observe_variant=observe_variant
        )

    if q.bias_correction or q.weight_algorithm == "adaround":
        return ours(
            {"statistics": statistics.digest, "quantization": q, "float_layers": kept, "per_channel": per_channel},
            derive,
        )
    return derive()


def _by_configuration(experiment: Experiment, quantization: Quantization) -> QuantizationRecord:
    assert quantization.cfg is not None
    config = parse_config(quantization.cfg, file="quantization.cfg")
    proto = normalized(load_graph(experiment.model))
    try:
        recipe = recipe_of_config(config, quantizable_layers(proto))
    except ConfigError as error:  # what it names is this model's affair, so it is this candidate that fails
        raise CalibrationError(str(error)) from error
    batch = experiment.calibration.batch
    available = -(-experiment.calibration.samples // batch)
    wanted = int(recipe.source["batch_num"] or 0)
    if wanted > available:
        raise CalibrationError(
            f"the configuration asks for {wanted} batches, calibration.samples of {experiment.path.name} "
            f"gives {available} of {batch}. Raise it, or lower batch_num."
        )

    def batches() -> Iterator[Feeds]:
        yield from itertools.islice(calibration_batches(experiment)(), wanted)

    try:
        return follow_amct(experiment.model, recipe, batches)
    except ValueError as error:
        raise CalibrationError(f"the configuration does not fit the model: {error}") from error


def _stored(
    bench: Bench, clock: StageClock, key: Mapping[str, object], build: Callable[[Path], None]
) -> QuantizationRecord:
    entry = bench.store.get_or_build("record", key, build)
    clock.cached = entry.cached
    return read_record(entry.path / "record.json")


# --- what quantizing each layer or group alone costs -----------------------------------------------------------------

SENSITIVITY_SAMPLES = 48
SENSITIVITY_RECIPE = EVERYTHING_INT8
"""One ranking serves every recipe: which layers suffer most depends on the layer far more than on the clip rule
[inferred], and one ranking makes `keep_float` mean the same layers in every candidate of a sweep."""


def sensitivity_of(
    experiment: Experiment, bench: Bench, statistics: Statistics, unit: FloatUnit
) -> tuple[Sensitivity, ...]:
    """Every layer, or every group of layers, quantized alone over a few calibration samples; in graph order."""
    key = {
        **data_key(experiment),
        "statistics": statistics.digest,
        "samples": SENSITIVITY_SAMPLES,
        "recipe": SENSITIVITY_RECIPE,
        "unit": unit,
    }

    def measured() -> list[Sensitivity]:
        batch = experiment.calibration.batch
        feeds = calibration_feeds(experiment.dataset, experiment.model, batch=batch, samples=SENSITIVITY_SAMPLES)
        recipe = recipe_of(SENSITIVITY_RECIPE, statistics.layers)
        units = None
        if unit == "group":
            units = groups_of(normalized(load_graph(experiment.model)), statistics.layers, recipe)
        return list(measure_sensitivity(experiment.model, statistics, recipe, feeds, units))

    return decode(tuple[Sensitivity, ...], bench.store.json_of("sensitivity", key, measured))


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
    ranking = [unit for unit in ranked(found, q.sensitivity) if any(name in applicable for name in unit.layers)]
    if q.keep_float > len(ranking):
        raise CalibrationError(
            f"{q.keep_float} {q.keep_float_unit}s are to stay in float, the model has {len(ranking)}. Lower keep_float."
        )
    return tuple(name for unit in ranking[: q.keep_float] for name in unit.layers if name in applicable)


# --- the float model observed over the calibration samples: one pass, shared by every recipe -------------------------


def statistics_of(
    experiment: Experiment, bench: Bench, clock: StageClock, *, proto: ModelProto | None = None, variant: str = ""
) -> Statistics:
    """One observing pass over the calibration samples; shared by every static candidate.

    Args:
        proto, variant: a changed graph and its name (a balanced one); the model itself without.
    """

    def build(to: Path) -> None:
        statistics = observe(experiment.model, calibration_batches(experiment)(), proto=proto, variant=variant)
        save_statistics(statistics, to / "statistics.npz")

    entry = bench.store.get_or_build("statistics", {**data_key(experiment), "variant": variant}, build)
    clock.cached = entry.cached
    return load_statistics(entry.path / "statistics.npz")


def observed_statistics(experiment: Experiment, bench: Bench) -> Statistics | None:
    """The float model's statistics where some candidate needed them already; never observes."""
    entry = bench.store.find("statistics", {**data_key(experiment), "variant": ""})
    return None if entry is None else load_statistics(entry.path / "statistics.npz")


def data_key(experiment: Experiment) -> dict[str, object]:
    """What everything computed from the calibration samples depends on."""
    return {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "settings": experiment.calibration,
        "onnxruntime": version("onnxruntime"),  # it runs the float model, whatever the candidates' target
        "code": closure_digest(
            "workbench.quantization",
            "workbench.graph.groups",
            "workbench.inputs.dataset",
            alone=(__name__, "workbench.evaluation.carried"),
        ),
    }


def calibration_batches(experiment: Experiment) -> Callable[[], Iterator[Feeds]]:
    settings = experiment.calibration
    return lambda: calibration_feeds(
        experiment.dataset, experiment.model, batch=settings.batch, samples=settings.samples
    )


def calibration_line(statistics: Statistics) -> str:
    """Whether more calibration samples would change anything, in one sentence (`Statistics.stability`)."""
    unstable = statistics.unstable()
    if not unstable:
        return (
            f"calibration: {statistics.samples} samples are enough; two halves of them show the same ranges to within "
            f"{max(statistics.stability().values(), default=0.0):.0%}"
        )
    worst = unstable[0]
    return (
        f"calibration: {len(unstable)} of {len(statistics.tensors)} tensors have ranges that a few of the "
        f"{statistics.samples} samples decide (worst: {worst}, {statistics.stability()[worst]:.0%} apart between two "
        "halves). Raise calibration.samples, or prefer algorithms that clip."
    )
