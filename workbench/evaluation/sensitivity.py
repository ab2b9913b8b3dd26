"""What quantizing each layer or group alone costs, and which of them a candidate keeps in float for it."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from workbench.evaluation.bench import Bench
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.statistics import data_key
from workbench.graph.groups import layer_groups
from workbench.graph.layers import Layer
from workbench.graph.read import load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.sensitivity import Sensitivity, measure_sensitivity, ranked
from workbench.quantization.statistics import Statistics
from workbench.values.candidate import EVERYTHING_INT8, Candidate, FloatUnit
from workbench.values.documents.canonical import decode
from workbench.values.errors import CalibrationError

SENSITIVITY_SAMPLES = 48
SENSITIVITY_RECIPE = EVERYTHING_INT8
"""One ranking serves every recipe: which layers suffer most depends on the layer far more than on the clip rule
[inferred], and one ranking makes `keep_float` mean the same layers in every candidate of a sweep."""


def sensitivity_of(
    experiment: Experiment, bench: Bench, statistics: Statistics, unit: FloatUnit
) -> tuple[Sensitivity, ...]:
    """Every layer, or every group of layers, quantized alone over a few calibration samples; in graph order."""
    key = {
        **data_key(experiment, __name__),
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
