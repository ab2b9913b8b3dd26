"""The figures that users published for BERT-Small on 910B3, through atc's default fusions: fitted to none of them."""

from dataclasses import replace
from pathlib import Path

from benchmarks.published_910b3 import BATCH, SOC, compile_models, device_ms, figures
from tests.cann_emulator.bert import BERT_SMALL
from workbench.values.modelled_times.device_data import load_device_data


def test_the_published_figures_are_fitted_to_nothing_and_told_with_their_deviation(tmp_path: Path) -> None:
    """Kernels alone take a third to a fifth of it: what host, service and the compiler add or leave is not known."""
    b3, shape = load_device_data(SOC), replace(BERT_SMALL, vocabulary=1000)  # the table's size costs a lookup nothing
    fp16, int8 = (compile_models(tmp_path, (1, BATCH), int8=int8, shape=shape) for int8 in (False, True))

    found = figures(fp16, int8[BATCH], b3)

    assert [round(figure.published, 2) for figure in found] == [5.38, 1659, 1.76]
    for figure in found:
        assert 1 / 4 < figure.emulated / figure.published < 4, figure
    gain = {batch: device_ms(fp16[batch], b3) / device_ms(int8[batch], b3) for batch in (1, BATCH)}
    assert gain[1] < gain[BATCH] < 2, "with large batches the cube has the larger share"
