"""The record that a calibrated candidate is lowered with: derived from statistics, or kept in the store.

Two ways besides the native engine: a vendor's configuration followed by our code, and the vendor's own quantizer, where
the target has one that is installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from onnx import ModelProto

from workbench.evaluation.bench import Bench, StageClock, log_kept
from workbench.evaluation.sensitivity import kept_in_float
from workbench.evaluation.statistics import calibration_batches, data_key, statistics_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.calibrate import derive_record, follow_amct
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import QuantizationRecord, read_record, write_record
from workbench.quantization.statistics import Statistics
from workbench.targets import described
from workbench.values.candidate import Candidate, Quantization
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
        key = {**data_key(experiment, __name__), **recipe}
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
