"""From a recipe to a record: the one place that knows in which order the steps of the native engine run.

    statistics ─► balance factors ─► observe the balanced model again ─► choose ─► learn rounding ─► correct biases

Each step runs only where the recipe asks for it. Without balancing, learned rounding and bias correction a record
costs no pass over the data beyond the one that made the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from onnx import ModelProto

from workbench.graph.apart import kept_aside
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.algorithms import choose
from workbench.quantization.balance import balance_factors, best_strengths
from workbench.quantization.exact import Batches, calibrate_exactly
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import balanced
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.rounding import bias_corrections, learn_rounding
from workbench.quantization.statistics import Statistics
from workbench.quantization.weights import weights_of
from workbench.values.documents.canonical import digest
from workbench.values.model import Model

ObserveVariant = Callable[[ModelProto, str], Statistics]


def derive_record(
    model: Model,
    recipe: ModelRecipe,
    statistics: Statistics,
    batches: Batches,
    *,
    observe_variant: ObserveVariant | None = None,
) -> QuantizationRecord:
    """The record of a recipe; deterministic for equal statistics and batches.

    Args:
        statistics: of the float model itself.
        observe_variant: observes a changed graph, named by its digest; by default it runs the batches again. A
            caller with a cache puts it here.

    Raises:
        CalibrationError: the model fails on a batch, or values are NaN or infinite.
        ValueError: the recipe does not fit the model.
    """
    with kept_aside(model.size_bytes):
        proto = normalized(load_graph(model))
        factors: Mapping[str, tuple[float, ...]] = {}
        if any(layer.balance is not None for layer in recipe.layers.values()):
            layers = quantizable_layers(proto)
            weights = weights_of(proto, layers)
            if recipe.balance_search:
                best = best_strengths(statistics, layers, weights, recipe)
                chosen = {
                    name: replace(settings, balance=None if settings.balance is None else best.get(name))
                    for name, settings in recipe.layers.items()
                }
                recipe = replace(recipe, layers=chosen, balance_search=False)
            factors = balance_factors(statistics, layers, weights, recipe)
        if factors:
            proto = balanced(proto, factors, fold=True)
            variant = digest({"balance": factors})
            if observe_variant is None:
                statistics = observe(model, batches(), proto=proto, variant=variant)
            else:
                statistics = observe_variant(proto, variant)
        record = choose(statistics, recipe, proto, balance=factors)
        record = learn_rounding(model, batches, record, recipe)
        if recipe.bias_correction:
            found = bias_corrections(model, batches(), record)
            corrected = (
                replace(one, bias_correction=tuple(map(float, found[one.layer]))) if one.layer in found else one
                for one in record.layers
            )
            record = replace(record, layers=tuple(corrected))
        return record


def follow_amct(model: Model, recipe: ModelRecipe, batches: Batches) -> QuantizationRecord:
    """The record of an AMCT configuration: its own procedure, and learned rounding where it asks for ADA.

    Raises:
        CalibrationError: as `exact.calibrate_exactly`.
        ValueError: the recipe does not fit the model.
    """
    return learn_rounding(model, batches, calibrate_exactly(model, batches, recipe), recipe)
