"""`workbench profile` as a user runs it on the emulated device."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ascend_workspace import QUIET, Done, workbench, write_ascend_workspace
from tests.emulated_cann import emulated_environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ascend_workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def profiled(environment: Mapping[str, str], experiment: Path) -> Done:
    folder = experiment.parent.parent
    files = ("--to", folder / "prof")
    done = workbench(environment, "profile", experiment, "--calls", 5, "--json", *files)
    assert done.returncode == 0, done.stderr
    return done


def test_the_profile_is_told_to_programs_with_its_level(profiled: Done, experiment: Path) -> None:
    found = json.loads(profiled.stdout)

    assert (found["evidence"], found["executions"]) == ("modelled", 5)
    assert "EMULATED" in profiled.stderr
    told = found["edges_us"] + found["short_gaps_us"] + sum(found["causes"].values())
    assert found["idle_us"] == pytest.approx(told, abs=0.001)


def test_a_profile_from_elsewhere_is_read_without_a_run(
    profiled: Done, environment: Mapping[str, str], experiment: Path
) -> None:
    folder = experiment.parent.parent / "prof"

    done = workbench(environment, "profile", experiment, "--read", folder)
    absent = workbench(environment, "profile", experiment, "--read", folder / "nothing")

    assert done.returncode == 0, done.stderr
    assert "where the time goes (modelled)" in done.stdout
    assert absent.returncode != 0
    assert "No op_summary" in absent.stderr


def test_layers_are_priced_by_the_device_and_not_by_this_machine(
    environment: Mapping[str, str], experiment: Path
) -> None:
    done = workbench(environment, "sensitivity", experiment, "--quick", "--json", "--unit", "layer")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["prices"]["by"], found["prices"]["level"]) == ("device", "modelled")
    assert all(unit["float_us"] > 0 for unit in found["layers"])
    page = (experiment.parent.parent / ".workbench/sensitivity/tiny-910b3/sensitivity.html").read_text("utf-8")
    assert "modelled, on no real device" in page
    assert "one thread" not in page
