"""Errors say the fact, the value and the next step."""

import pytest

from workbench.errors import (
    CandidateError,
    CheckError,
    CompileError,
    ConfigError,
    MeasureError,
    WorkbenchError,
    nearest,
)


def test_a_config_error_begins_with_the_place_an_editor_can_jump_to() -> None:
    error = ConfigError("unknown key.", file="a.yaml", line=3, key="budget.trails", hint="Did you mean 'trials'?")

    assert str(error) == "a.yaml:3: budget.trails: unknown key. Did you mean 'trials'?"


@pytest.mark.parametrize(
    ("kind", "stage"), [(CheckError, "check"), (CompileError, "compile"), (MeasureError, "measure")]
)
def test_a_candidates_error_knows_its_stage(kind: type[CandidateError], stage: str) -> None:
    error = kind("no", transient=True)

    assert isinstance(error, WorkbenchError)
    assert error.stage == stage
    assert error.transient


def test_the_nearest_names_are_offered_or_all_of_them() -> None:
    assert nearest("acuracy", ["accuracy", "speedup"]) == "Did you mean 'accuracy'?"
    assert nearest("zzz", ["b", "a"]) == "Valid names: a, b."
