"""`workbench plan-capacity`: from a journal to tables and JSON, and what it refuses."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.commands.running import run
from tests.prediction.fleets import served
from tests.tiny import write_workspace
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError

plan = partial(run, "plan-capacity")


def test_the_front_and_the_baseline_stand_in_a_table_and_in_json_with_what_they_rest_on(
    served_experiment: Path,
) -> None:
    asked = ("--qps", 1000, "--p99-ms", 100, "--headroom", "0.5")
    shown = plan(served_experiment, *asked)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    for fact in ("PREDICTED for 1,000 requests/s", "float baseline", "INT8 static", "50% headroom", "P50 / P99 ms"):
        assert fact in words
    assert "server processes scale linearly" in words
    told = json.loads(plan(served_experiment, *asked, "--json").stdout)
    assert (told["version"], told["unit"], told["demand"]["headroom"]) == (1, "server process", 0.5)
    quick, slow = told["members"]
    assert (quick["baseline"], slow["baseline"]) == (False, True)
    assert 0 < quick["cards"] < slow["cards"]
    assert quick["settings"]["max_batch_size"] == 8
    assert quick["planned"]["p99_ms"]["value"] <= 100


def test_what_cannot_be_planned_is_refused(served_experiment: Path) -> None:
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        (("--p99-ms", 100, "--qps", 10, "--headroom", "much"), "'much' is no share"),
        (("--p99-ms", 0, "--qps", 10), "p99_ms"),
        (("--p99-ms", 100, "--qps", 10, "--candidate", "ffff"), "no candidate"),
    )
    for arguments, message in cases:
        error = plan(served_experiment, *arguments).exception
        assert isinstance(error, ConfigError)
        assert message in str(error)


def test_a_sweep_without_batch_curves_is_refused_with_what_to_write(tmp_path: Path) -> None:
    file = write_workspace(tmp_path)
    question = read_experiment(file)
    open_journal(question.workspace, question.name, question.identity).write(
        replace(served({1: 5.0}), candidate=question.baseline)
    )

    error = plan(file, "--qps", 10, "--p99-ms", 50).exception

    assert isinstance(error, ConfigError)
    assert "has no `service:` section" in str(error)
    assert "Add service: {concurrency: 100" in str(error)
