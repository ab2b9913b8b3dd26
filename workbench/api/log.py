"""What MLflow lacks of a sweep, written from its journal."""

from __future__ import annotations

from pathlib import Path

from workbench.api.opening import journal_of, opened, summary_of, tracked
from workbench.evaluation.build import artifact_of
from workbench.evaluation.sweep_folders import exclusive
from workbench.inputs.experiment import Experiment


def log(experiment: Experiment | Path | str, *, workspace: Path | str | None = None) -> tuple[str, ...]:
    """Write into MLflow what it lacks of the last sweep; nothing is measured, and nothing is written twice.

    Returns:
        Links into MLflow's UI.

    Raises:
        ConfigError: there was no sweep, or the environment names no server of MLflow's.
        ToolchainError: MLflow cannot be used, or another process sweeps this experiment.
    """
    with opened(experiment, workspace) as (question, bench):
        journal = journal_of(question)
        with (
            exclusive(journal),
            tracked(question, journal, later=False) as tracker,
        ):
            summary = summary_of(question, journal)
            return tuple(tracker.complete(summary, models=lambda chosen: artifact_of(question, chosen, bench)[1]))
