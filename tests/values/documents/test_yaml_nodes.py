"""YAML beyond what people write is refused at the first value too many, with its line, and quickly."""

from pathlib import Path

import pytest

from workbench.values.documents.yaml_nodes import MOST_BYTES, MOST_DEPTH, MOST_VALUES, compose
from workbench.values.documents.yaml_reader import read_yaml
from workbench.values.errors import ConfigError

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
    path = tmp_path / "file.yaml"
    path.write_text("version: 1\na: &a [1, 2]\nb: *a\nc: &a 3\nd: [*a, *a]\n")

    with read_yaml(path) as top:
        assert top.integers("a") == top.integers("b") == (1, 2)
        assert top.integer("c") == 3
        assert top.integers("d") == (3, 3)


def test_a_file_larger_than_any_written_by_hand_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("version: 1\n" + "#\n" * MOST_BYTES)

    with pytest.raises(ConfigError, match="at most 256 KiB are read"):
        read_yaml(path)
