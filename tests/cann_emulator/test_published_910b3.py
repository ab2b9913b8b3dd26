"""The figures that users published for BERT-Small on 910B3, through atc's default fusions: fitted to none of them."""

from dataclasses import replace

import pytest

from benchmarks.published_910b3 import BATCH, SOC, compile_models, device_ms, figures
from tests.cann_emulator.bert import BERT_SMALL
from workbench.cann_emulator.om import OfflineModel
from workbench.values.modelled_times.device_data import load_device_data

B3 = load_device_data(SOC)
SHAPE = replace(BERT_SMALL, vocabulary=1000)
"""The table's size costs a lookup nothing."""

Models = dict[str, dict[int, OfflineModel]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("published")
    batches = (1, BATCH)
    return {name: compile_models(folder, batches, int8=name == "int8", shape=SHAPE) for name in ("fp16", "int8")}


def test_the_published_figures_are_fitted_to_nothing_and_told_with_their_deviation(models: Models) -> None:
    """Kernels alone take a third to a fifth of it: what host, service and the compiler add or leave is not known."""
    found = figures(models["fp16"], models["int8"][BATCH], B3)

    assert [round(figure.published, 2) for figure in found] == [5.38, 1659, 1.76]
    for figure in found:
        assert 1 / 4 < figure.emulated / figure.published < 4, figure


def test_int8_gains_more_with_large_batches_where_the_cube_has_the_larger_share(models: Models) -> None:
    gain = {batch: device_ms(models["fp16"][batch], B3) / device_ms(models["int8"][batch], B3) for batch in (1, 16)}

    assert gain[1] < gain[16] < 2
