"""Records: which are kept, which share a pass, what stays in float, and what an AMCT configuration asks for."""

from typing import Any

import pytest

from tests.evaluation.workplace import BATCH, CFG, SAMPLES, Workplace
from workbench.evaluation.record import record_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.amct.config import parse_config, recipe_of_config
from workbench.quantization.calibrate import calibrate_exactly
from workbench.quantization.lowering.normalize import normalized
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CalibrationError


@pytest.mark.parametrize(
    "changes", [{"bias_correction": True}, {"weight_algorithm": "adaround"}], ids=["bias_correction", "adaround"]
)
def test_records_that_read_the_data_again_are_kept(work: Workplace, changes: dict[str, Any]) -> None:
    plain = work.record()

    once = work.samples_read(lambda: work.record(**changes))
    again = work.samples_read(lambda: work.record(**changes))

    assert (once, again) == (SAMPLES, 0)
    assert work.entries("record") == 1
    record = work.record(**changes)
    assert record == work.record(**changes) != plain
    for layer in record.layers:
        if layer.weight is not None:
            added = layer.bias_correction if "bias_correction" in changes else layer.weight.rounding
            assert added is not None


def test_an_amct_configuration_follows_amcts_procedure_on_its_own_batches(work: Workplace) -> None:
    candidate = Candidate(target="onnxruntime", quantization=Quantization(scheme="cfg", cfg=CFG))

    before = work.rows.count
    found = record_of(work.experiment, candidate, work.bench)

    assert work.rows.count - before in (3 * BATCH, 2 * 3 * BATCH)  # IFMR: the start of the search, then the search
    recipe = recipe_of_config(
        parse_config(CFG, file="test.cfg"), quantizable_layers(normalized(load_graph(work.experiment.model)))
    )
    batches = [b.feeds for b in work.experiment.dataset.batches("calibration", BATCH, stop=3 * BATCH)]
    assert found == calibrate_exactly(work.experiment.model, lambda: iter(batches), recipe)
    assert "classifier" not in {layer.layer for layer in found.layers}
    assert work.samples_read(lambda: record_of(work.experiment, candidate, work.bench)) == 0
    assert (work.entries("statistics"), work.entries("record")) == (0, 1)


def test_recipes_that_need_one_pass_share_it(work: Workplace) -> None:
    first = work.samples_read(work.record)

    later = work.samples_read(
        lambda: [
            work.record(algorithm="kl"),
            work.record(algorithm="percentile", percentile=99.9),
            work.record(algorithm="ifmr", activation_symmetric=True),
            work.record(algorithm="hfmg", weight_algorithm="arq", weight_granularity="tensor"),
            work.record(algorithm="mse", weight_algorithm="mse", attention_matmul=False),
        ]
    )

    assert (first, later) == (SAMPLES, 0)
    assert work.entries("statistics") == 1
    assert work.entries("record") == 0


def test_rankings_by_every_metric_come_from_one_measurement_per_unit(work: Workplace) -> None:
    for metric in ("sqnr", "kl", "cosine", "first_order"):
        for unit in ("layer", "group"):
            work.record(keep_float=2, keep_float_unit=unit, sensitivity=metric)

    assert work.entries("sensitivity") == 2
    assert work.entries("statistics") == 1


def test_more_batches_or_units_in_float_than_there_are_are_refused(work: Workplace) -> None:
    for changes, rule in (
        ({"keep_float": 20}, "20 layers are to stay in float, the model has 9"),
        ({"keep_float": 20, "keep_float_unit": "group"}, r"20 groups .*, the model has \d\. Lower keep_float"),
    ):
        with pytest.raises(CalibrationError, match=rule):
            work.record(**changes)
    asking = Quantization(scheme="cfg", cfg=CFG.replace("batch_num: 3", "batch_num: 5"))
    with pytest.raises(CalibrationError, match=r"asks for 5 batches.*gives 4 of 8"):
        record_of(work.experiment, Candidate(target="onnxruntime", quantization=asking), work.bench)
