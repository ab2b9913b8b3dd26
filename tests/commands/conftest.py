"""What tests of several commands ask about."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.prediction.fleets import served
from tests.tiny import EXPERIMENT, SPACE, write_workspace
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment


@pytest.fixture(scope="session")
def served_experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep whose journal holds a float baseline of 20 ms and an INT8 candidate of 8 ms a call."""
    question = EXPERIMENT + "service: {concurrency: 100, p99_ms: 80}\n"
    choices = SPACE + "service: {max_batch_size: [1, 8], batch_timeout_ms: [0], workers: [1]}\n"
    file = write_workspace(tmp_path_factory.mktemp("served"), experiment=question, space=choices)
    asked = read_experiment(file)
    journal = open_journal(asked.workspace, asked.name, asked.identity)
    journal.write(replace(served({1: 20.0, 8: 60.0}), candidate=asked.baseline))
    quick = evaluation(scheme="static", drop_pp=0.1, p50_ms=1.6, speedup=2.5)
    measured = served({1: 8.0, 8: 24.0}).measurement.service
    journal.write(replace(quick, measurement=replace(quick.measurement, service=measured)))
    return file
