"""What MLflow's UI shows: the list of runs it opens with, and the description of a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from workbench.tracking import Place
from workbench.tracking.links import VIEW, save_view
from workbench.tracking.run import NOTE, candidate_tags, marked_name
from workbench.tracking.store import client_of, mlflow_errors, open_experiment, prepare
from workbench.values.evidence import Evidence
from workbench.values.results import Stop


def test_the_view_shows_the_metric_it_is_sorted_by_and_what_the_service_does(tmp_path: Path) -> None:
    prepare(tmp_path)
    found = {}
    with mlflow_errors():
        client = client_of(Place(store=tmp_path))
        experiment_id = open_experiment(client, "x", tmp_path / "artifacts", "")
        for order in ("service_throughput_per_s", "latency_p50_ms", "size_mb"):
            save_view(client, experiment_id, order)
            tags = client.get_experiment(experiment_id).tags
            found[order] = json.loads(tags[f"mlflow.sharedViewState.{VIEW}"])

    assert [state["orderByAsc"] for state in found.values()] == [False, True, True]
    for order, state in found.items():
        columns = state["selectedColumns"]
        assert state["orderByKey"] == f"metrics.`{order}`"
        assert columns.count(f"metrics.`{order}`") == 1
        assert {"metrics.`service_throughput_per_s`", "metrics.`service_p99_ms`"} <= set(columns)


def test_the_description_of_a_stopped_candidate_says_emulated_as_well() -> None:
    stop = Stop(stage="accuracy_subset", reason="too wrong", violations={"accuracy_loss_pp": 0.25})
    found = evaluation(scheme="static", stop=stop)
    found = replace(found, toolchain=replace(found.toolchain, emulated=True))

    assert candidate_tags(found, "1", False)[NOTE] == (
        "Emulated: no number of this run was measured on a real device.\n\nStopped at accuracy_subset: too wrong."
    )


@pytest.mark.parametrize(
    ("name", "level", "marked"),
    [
        ("99a5a2 INT8", "predicted", "★ [predicted] 99a5a2 INT8"),
        ("◆ [shared] 99a5a2 INT8", "measured", "★ 99a5a2 INT8"),
        ("★ 99a5a2 INT8", "measured held-out", "★ 99a5a2 INT8"),
        ("[emulated] 99a5a2 INT8", "modelled", "★ [emulated] 99a5a2 INT8"),
        ("99a5a2 INT8", None, "★ 99a5a2 INT8"),
    ],
)
def test_a_name_says_what_is_less_than_measured(name: str, level: Evidence | None, marked: str) -> None:
    assert marked_name(name, True, True, level) == marked
    assert marked_name(marked, True, True, level) == marked
