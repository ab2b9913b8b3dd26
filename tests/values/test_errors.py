"""Errors say the fact, the value and the next step."""

from workbench.values.errors import (
    ConfigError,
    nearest,
)


def test_a_config_error_begins_with_the_place_an_editor_can_jump_to() -> None:
    error = ConfigError("unknown key.", file="a.yaml", line=3, key="budget.trails", hint="Did you mean 'trials'?")

    assert str(error) == "a.yaml:3: budget.trails: unknown key. Did you mean 'trials'?"


def test_the_nearest_names_are_offered_or_all_of_them() -> None:
    assert nearest("acuracy", ["accuracy", "speedup"]) == "Did you mean 'accuracy'?"
    assert nearest("zzz", ["b", "a"]) == "Valid names: a, b."


def test_what_an_error_quotes_of_a_file_is_printable_and_ends() -> None:
    error = ConfigError("got \x1b[31m" + "x" * 10_000, key="a\ud800", hint="\u202eevil")

    assert len(str(error)) < 3000
    assert "\\x1b[31m" in str(error)
    assert str(error).isprintable()


def test_a_hint_about_thousands_of_names_does_not_compare_them() -> None:
    assert nearest("x" * 100_000, ["a", "b"]) == "2 names are valid."
    assert nearest("a", [f"name{i}" for i in range(100_000)]) == "100000 names are valid."
