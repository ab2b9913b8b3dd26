"""The way into MLflow's UI, and the real one in a browser where there is one."""

import sys
from pathlib import Path

import pytest

from tests.tracking.test_tracking import NAME, runs, swept
from workbench.tracking import links_of, ui_command
from workbench.values.errors import ToolchainError


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


def test_there_are_no_links_before_anything_was_logged(workspace: Path, tmp_path: Path) -> None:
    assert links_of(workspace, NAME) == []
    assert links_of(tmp_path / "elsewhere", NAME) == []
    with pytest.raises(ToolchainError, match="Run a sweep first"):
        ui_command(tmp_path / "elsewhere")


def test_the_ui_is_started_small_and_silent(workspace: Path) -> None:
    command, environment = ui_command(workspace, "127.0.0.1", 5001)

    assert command[:4] == [sys.executable, "-m", "mlflow", "ui"]
    assert command[-2:] == ["--workers", "1"]
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
