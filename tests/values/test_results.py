"""Results: numbers under stable names, never sentinels."""

import json
from dataclasses import replace

import pytest

from tests.evaluations import evaluation
from workbench.values.measurement import Measurement
from workbench.values.metrics import metrics
from workbench.values.results import Failure, Stop, evaluation_from_json

STOP = Stop(stage="accuracy_subset", reason="too far off", violations={"accuracy_loss_pp": 3.0})
FAILURE = Failure(stage="compile", kind="CompileError", message="no kernel", reproduce="workbench evaluate x")


def test_an_evaluation_survives_json_and_another_version_is_refused() -> None:
    for one in (evaluation(drop_pp=0.2), evaluation(stop=STOP), evaluation(failure=FAILURE)):
        assert evaluation_from_json(json.loads(json.dumps(one.to_json()))) == one
    with pytest.raises(ValueError, match="version 7 is unknown"):
        evaluation_from_json({**evaluation().to_json(), "version": 7})


def test_a_failure_has_no_numbers_and_a_complete_evaluation_has_all() -> None:
    assert metrics(evaluation(failure=FAILURE)) == {}
    assert {"accuracy", "accuracy_loss_pp", "latency_p50_ms", "latency_p99_ms", "speedup", "size_mb"} <= set(
        metrics(evaluation(drop_pp=0.2))
    )


def test_reported_times_are_corrected_for_the_drift_of_the_machine() -> None:
    slow_day = metrics(evaluation(p50_ms=4.4, speedup=2.0, drift=1.1))

    assert slow_day["latency_p50_ms"] == pytest.approx(4.0)
    assert slow_day["throughput_per_s"] == pytest.approx(250.0)
    assert slow_day["speedup"] == 2.0


def test_a_contradictory_evaluation_cannot_be_constructed() -> None:
    for change, message in (
        ({"status": "failed"}, "carries a failure"),
        ({"stop": STOP}, "carries a stop"),
        ({"measurement": Measurement()}, "has accuracy and latency"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(evaluation(), **change)
