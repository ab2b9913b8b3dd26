"""The strict YAML reader: every mistake of the user is named with file, line and key; what is beyond what people write
is refused at the first value too many, and quickly."""

import os
from pathlib import Path

import pytest

from workbench.values.documents.yaml_nodes import MOST_BYTES, MOST_DEPTH, MOST_VALUES, compose
from workbench.values.documents.yaml_reader import parse_seconds, read_yaml
from workbench.values.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text("version: 1\n" + text, encoding="utf-8")
    return path


def test_values_come_out_as_plain_python(tmp_path: Path) -> None:
    with read_yaml(write(tmp_path, "a: 3\nb: 2\nc: [x, y]\nd: off\ne: {f: 1h}\n")) as top:
        assert top.integer("a") == 3
        assert top.number("b") == 2.0
        assert top.texts("c") == ("x", "y")
        assert top.text("d") == "off"
        with top.section("e") as section:
            assert section.seconds("f") == 3600.0


def test_an_unknown_key_is_refused_with_line_path_and_the_nearest_name(tmp_path: Path) -> None:
    path = write(tmp_path, "budget:\n  trails: 3\n")

    with pytest.raises(ConfigError) as caught, read_yaml(path) as top, top.section("budget") as section:
        section.integer("trials", 1)

    assert str(caught.value) == f"{path}:3: budget.trails: unknown key. Did you mean 'trials'?"
    with pytest.raises(ConfigError, match=r"budget\.trails: unknown key"), read_yaml(path) as top:
        top.section("budget")  # which nobody closed


def test_a_wrong_value_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("a: x\n", "a: expected an integer, got 'x'"),
        ("a: true\n", "a: expected an integer, got True"),
        ("a: 0\n", "a: 0 is less than 1"),
        ("b: 1\n", "a: missing. This key is required."),
        ("a:\n", "a: missing"),
        ("a: 1\na: 2\n", "not valid YAML"),
        ("a: [1\n", "not valid YAML"),
    ):
        with pytest.raises(ConfigError, match=message), read_yaml(write(tmp_path, text)) as top:
            top.integer("a", minimum=1)
    for text in (".nan", ".inf", "1e999"):
        with pytest.raises(ConfigError, match="a"), read_yaml(write(tmp_path, f"a: {text}\n")) as top:
            top.number("a")


def test_a_missing_file_broken_encoding_and_another_version_are_named(tmp_path: Path) -> None:
    for name, content, message in (
        ("absent", None, "no such file"),
        ("latin", b"version: 1\nname: caf\xe9\n", r"latin:2: byte 0xe9 is not UTF-8"),
        ("later", b"version: 2\n", r"2 is not supported\. This workbench reads version 1"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_yaml(tmp_path / name)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    path = write(tmp_path, "a: data/x.csv\nb: data/y.csv\n")
    missing = pytest.raises(ConfigError, match=r"y\.csv does not exist. Paths are relative to this file")

    with missing, read_yaml(path) as top:
        assert top.file_path("a") == (tmp_path / "data" / "x.csv").resolve()
        top.file_path("b")


def test_what_is_no_file_is_refused_with_the_key_that_names_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    kinds = {"pipe": "a FIFO", "link": "a character device", "/dev/zero": "a character device", ".": "a folder"}
    for written, kind in kinds.items():
        file = tmp_path / "a.yaml"
        file.write_text(f"version: 1\nmodel: {written}\n")
        with (
            pytest.raises(ConfigError, match=rf"a\.yaml:2: model: .* is {kind}, not a regular file"),
            read_yaml(file) as top,
        ):
            top.file_path("model")


def test_durations() -> None:
    for text, seconds in (("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)):
        assert parse_seconds(text) == seconds
    for wrong in ("", "soon", "-1", "0", "inf", True):
        with pytest.raises(ValueError, match="duration"):
            parse_seconds(wrong)


def test_all_that_is_wrong_is_told_at_once_and_a_misspelt_key_once(tmp_path: Path) -> None:
    path = write(tmp_path, "trails: 3\nseed: x\nmodel: {kind: 5, size: 0}\n")

    def read() -> None:
        with read_yaml(path) as top:
            top.text("name")
            top.integer("trials")
            top.integer("seed")
            with top.section("model") as section:
                section.text("kind")
                section.integer("size", minimum=1)
                section.text("file")

    with pytest.raises(ConfigError) as caught:
        read()

    assert str(caught.value).splitlines() == [
        f"{path}: 6 things are wrong:",
        "  line 1: name: missing. This key is required.",
        "  line 2: trails: unknown key. Did you mean 'trials'?",
        "  line 3: seed: expected an integer, got 'x'.",
        "  line 4: model.kind: expected a text, got 5.",
        "  line 4: model.size: 0 is less than 1.",
        "  line 4: model.file: missing. This key is required.",
    ]


def test_an_error_over_a_stand_in_is_not_shown_beside_the_mistake_it_comes_from(tmp_path: Path) -> None:
    def read() -> str:
        with read_yaml(write(tmp_path, "a: 1\n")) as top:
            return top.texts("names")[top.integer("a")]

    with pytest.raises(ConfigError, match=r"names: missing\. This key is required\.$"):
        read()


# --- bounds ----------------------------------------------------------------------------------------------------------

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


def test_text_beyond_a_bound_is_refused_by_its_rule() -> None:
    for text, rule in (
        (LAUGHS, rf"more than {MOST_VALUES} values with its aliases"),
        ("a: &a [1, *a]\n", "an alias stands inside what it names"),
        ("a: " + "[" * 3000, f"nested deeper than {MOST_DEPTH} levels"),
        ("a:\n" + "- " * 3000, f"nested deeper than {MOST_DEPTH} levels"),
        ("? " * 3000, f"nested deeper than {MOST_DEPTH} levels"),
        (f"a: [{'1,' * 11_000}]\n", f"more than {MOST_VALUES} values"),
        ("a: " + "9" * 5000, "a number of more than 64 characters"),
        ("a: 0x" + "f" * 20, "a whole number of more than 64 bits"),
        ("a: 9223372036854775808", "a whole number of more than 64 bits"),
        ("a: 2001-13-45", "not valid YAML: month must be in"),
        ("%YAML 1.1\n---\na: 1:59:59\n", "only YAML 1.2 is read"),
        ("a: !!python/object:os.system x", "the tag .* is not read"),
        ("a: !!binary x", "the tag .* is not read"),
        ('a: "\\0"', "a text with a NUL"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ('a: "\\UFFFFFFFF"', "not valid YAML"),
        ("{a: b}: c", "a key must be a single value"),
        ("a: &a {x: 1}\nb: {<<: *a}", "merge keys"),
    ):
        with pytest.raises(ConfigError, match=rule) as caught:
            compose(text, Path("hostile.yaml"))

        assert str(caught.value).startswith("hostile.yaml:")


def test_a_few_aliases_and_anchors_are_read(tmp_path: Path) -> None:
    with read_yaml(write(tmp_path, "a: &a [1, 2]\nb: *a\nc: &a 3\nd: [*a, *a]\n")) as top:
        assert top.integers("a") == top.integers("b") == (1, 2)
        assert top.integer("c") == 3
        assert top.integers("d") == (3, 3)


def test_a_file_larger_than_any_written_by_hand_is_not_parsed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 256 KiB are read"):
        read_yaml(write(tmp_path, "#\n" * MOST_BYTES))
