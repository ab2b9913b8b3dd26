"""Operator tuning by the emulated aoe: files, exit codes, and what the bank is to a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.ascend_workspace import QUIET, write_ascend_workspace
from tests.emulated_cann import emulated_environment, switched_on
from workbench.api.opening import named_candidate, question_of
from workbench.commands.cli import app
from workbench.values.errors import ToolchainError


def tune(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_a_bank_is_filled_for_every_shape_and_is_part_of_the_key(tmp_path: Path) -> None:
    file, to = write_ascend_workspace(tmp_path / "ws"), tmp_path / "to"
    with switched_on(emulated_environment(tmp_path / "cann", **QUIET)):
        said = tune(file, "--to", to)
        made = named_candidate(str(to / "candidate.json"), question_of(file))
        bank = next((to / "bank").iterdir())
        tuned = {made.id}
        bank.write_text("brought from another machine", encoding="utf-8")
        tune(file, "--bank", to / "bank", "--to", tmp_path / "brought")
        tuned.add(named_candidate(str(tmp_path / "brought" / "candidate.json"), question_of(file)).id)

    assert "EMULATED" in said
    assert "tuning b1_s8" in said
    assert "its key has: compile.op_bank_path" in said
    assert f"workbench evaluate {file} --candidate" in said
    assert len({*tuned, question_of(file).baseline.id}) == 3, "the content of the bank makes another candidate"


def test_a_tool_that_does_not_tune_this_chip_is_quoted(tmp_path: Path) -> None:
    file = write_ascend_workspace(tmp_path / "ws")
    refusing = emulated_environment(tmp_path / "cann", CANN_EMULATOR_AOE="refuses", **QUIET)
    with (
        switched_on(refusing),
        pytest.raises(
            ToolchainError,
            match=r"tried on one matrix product.*exit code 1: .*not "
            r"supported on this product.*op_bank_path",
        ),
    ):
        tune(file, "--to", tmp_path / "to")
    (Path(refusing["ASCEND_HOME_PATH"]) / "bin" / "aoe").unlink()
    with switched_on(refusing), pytest.raises(ToolchainError, match=r"No aoe on PATH.*--bank FOLDER"):
        tune(file, "--to", tmp_path / "to")
