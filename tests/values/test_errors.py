"""Errors say the fact, the value and the next step; each has one exit code, whatever command or program it ends."""

from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import BundleError, CompileError, ConfigError, ToolchainError, nearest
from workbench.values.exit_codes import FAILED, MACHINE, USER, exit_code_of


def test_a_config_error_begins_with_the_place_an_editor_can_jump_to_and_quotes_what_is_printable() -> None:
    error = ConfigError("unknown key.", file="a.yaml", line=3, key="budget.trails", hint="Did you mean 'trials'?")
    hostile = str(ConfigError("got \x1b[31m" + "x" * 10_000, key="a\ud800", hint="\u202eevil"))

    assert str(error) == "a.yaml:3: budget.trails: unknown key. Did you mean 'trials'?"
    assert len(hostile) < 3000
    assert "\\x1b[31m" in hostile
    assert hostile.isprintable()


def test_the_nearest_names_are_offered_or_all_of_them_and_thousands_are_not_compared() -> None:
    assert nearest("acuracy", ["accuracy", "speedup"]) == "Did you mean 'accuracy'?"
    assert nearest("zzz", ["b", "a"]) == "Valid names: a, b."
    assert nearest("x" * 100_000, ["a", "b"]) == "2 names are valid."
    assert nearest("a", [f"name{i}" for i in range(100_000)]) == "100000 names are valid."


def test_an_error_says_who_can_act_on_it() -> None:
    kinds = {ConfigError: USER, DecodeError: USER, ToolchainError: MACHINE, BundleError: FAILED, CompileError: FAILED}

    assert {kind: exit_code_of(kind("wrong.")) for kind in kinds} == kinds
