"""Which layers stay in float, by layer and by group."""

import pytest

from tests.evaluation.workplace import Workplace
from workbench.values.errors import CalibrationError


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
