"""Which layers stay in float, by layer and by group."""

import pytest

from tests.evaluation.workplace import Workplace
from tests.targets.encoder import WEIGHT_LAYERS
from workbench.graph.groups import layer_groups
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.lowering.normalize import normalized
from workbench.values.candidate import SensitivityMetric
from workbench.values.errors import CalibrationError


@pytest.mark.parametrize("metric", ["sqnr", "kl", "cosine", "first_order"])
def test_a_whole_group_stays_in_float(work: Workplace, metric: SensitivityMetric) -> None:
    record = work.record(keep_float=1, keep_float_unit="group", sensitivity=metric)

    proto = normalized(load_graph(work.experiment.model))
    layers = quantizable_layers(proto)
    groups = [set(members) for members in layer_groups(proto, layers).values()]
    assert set(record.float_layers) in groups
    assert {layer.layer for layer in record.layers} == {layer.name for layer in layers} - set(record.float_layers)


def test_rankings_by_every_metric_come_from_one_measurement_per_unit(work: Workplace) -> None:
    for metric in ("sqnr", "kl", "cosine", "first_order"):
        for unit in ("layer", "group"):
            work.record(keep_float=2, keep_float_unit=unit, sensitivity=metric)

    assert work.entries("sensitivity") == 2
    assert work.entries("statistics") == 1


def test_more_units_in_float_than_there_are_is_refused(work: Workplace) -> None:
    with pytest.raises(CalibrationError, match="20 layers are to stay in float, the model has 9"):
        work.record(keep_float=20)
    with pytest.raises(CalibrationError, match=r"20 groups are to stay in float, the model has \d\. Lower keep_float"):
        work.record(keep_float=20, keep_float_unit="group")


def test_products_that_a_recipe_leaves_alone_are_not_counted_as_kept(work: Workplace) -> None:
    record = work.record(attention_matmul=False, keep_float=len(WEIGHT_LAYERS) - 1)

    assert len(record.layers) == 1
    assert set(record.float_layers) < set(WEIGHT_LAYERS)
