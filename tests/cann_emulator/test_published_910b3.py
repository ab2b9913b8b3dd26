"""The figures that users published for BERT-Small on 910B3 come out within 15 %, through atc's default fusions."""

from dataclasses import replace

import pytest

from benchmarks.published_910b3 import SOC, compile_models, device_ms, figures
from tests.cann_emulator.bert import BERT_SMALL
from workbench.cann_emulator.device_data import load_device_data
from workbench.cann_emulator.om import OfflineModel

B3 = load_device_data(SOC)
SHAPE = replace(BERT_SMALL, vocabulary=1000)
"""The table's size costs a lookup nothing."""

Models = dict[str, dict[int, OfflineModel]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("published")
    batches = (1, B3.service.batch)
    return {name: compile_models(folder, batches, int8=name == "int8", shape=SHAPE) for name in ("fp16", "int8")}


@pytest.mark.parametrize("index", range(3), ids=["P50 at batch 1", "throughput", "INT8 over FP16"])
def test_the_published_figures_come_out_within_15_percent(models: Models, index: int) -> None:
    figure = figures(models["fp16"], models["int8"][B3.service.batch], B3)[index]

    assert abs(figure.deviation) < 0.15, figure


def test_int8_gains_more_with_large_batches_where_the_cube_has_the_larger_share(models: Models) -> None:
    gain = {batch: device_ms(models["fp16"][batch], B3) / device_ms(models["int8"][batch], B3) for batch in (1, 16)}

    assert 1 < gain[1] < gain[16] < 2
