"""The way into MLflow's UI, the list of runs it opens with, and the description of a run."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.tracking.test_tracking import NAME, runs, swept
from workbench.tracking import Place, links_of, ui_command
from workbench.tracking.links import VIEW, save_view
from workbench.tracking.run import NOTE, candidate_tags, marked_name
from workbench.tracking.store import client_of, mlflow_errors, open_experiment, prepare
from workbench.values.errors import ToolchainError
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


def test_a_name_says_what_is_less_than_measured() -> None:
    rows: tuple[tuple[str, Evidence | None, str], ...] = (
        ("99a5a2 INT8", "predicted", "★ [predicted] 99a5a2 INT8"),
        ("◆ [shared] 99a5a2 INT8", "measured", "★ 99a5a2 INT8"),
        ("★ 99a5a2 INT8", "measured held-out", "★ 99a5a2 INT8"),
        ("[emulated] 99a5a2 INT8", "modelled", "★ [emulated] 99a5a2 INT8"),
        ("99a5a2 INT8", None, "★ 99a5a2 INT8"),
    )
    for name, level, marked in rows:
        assert marked_name(name, True, True, level) == marked
        assert marked_name(marked, True, True, level) == marked


def test_links_name_the_mode_the_view_and_members_of_the_front_beside_the_baseline(workspace: Path) -> None:
    said = swept(workspace)

    assert links_of(workspace, NAME) == said
    assert [line.split(":")[0] for line in said] == ["all candidates", "front compared", "Pareto page"]
    assert all("workflowType=machine_learning" in line for line in said)
    (recommended,) = runs(workspace, "tags.recommended = 'true'")
    assert f"runs=%5B%22{recommended.info.run_id}" in said[1]
    (baseline,) = runs(workspace, "tags.baseline = 'true'")
    assert f"{baseline.info.run_id}%22%5D" in said[1]
    assert {run.data.tags["evidence"] for run in runs(workspace, "tags.pareto = 'true'")} == {"measured held-out"}


def test_there_are_no_links_before_anything_was_logged_and_the_ui_is_started_small_and_silent(
    workspace: Path, tmp_path: Path
) -> None:
    assert links_of(workspace, NAME) == links_of(tmp_path / "elsewhere", NAME) == []
    with pytest.raises(ToolchainError, match="Run a sweep first"):
        ui_command(tmp_path / "elsewhere")
    command, environment = ui_command(workspace, "127.0.0.1", 5001)

    assert command[:4] == [sys.executable, "-m", "mlflow", "ui"]
    assert command[-2:] == ["--workers", "1"]
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
