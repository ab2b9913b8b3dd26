"""YAML beyond what people write is refused at the first value too many, with its line, and quickly."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.values.documents.yaml_nodes import MOST_BYTES, MOST_DEPTH, MOST_VALUES, compose
from workbench.values.documents.yaml_reader import read_yaml
from workbench.values.errors import ConfigError

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param(LAUGHS, rf"more than {MOST_VALUES} values with its aliases", id="a billion aliases"),
        pytest.param("a: &a [1, *a]\n", "an alias stands inside what it names", id="an alias of itself"),
        pytest.param("a: " + "[" * 3000, f"nested deeper than {MOST_DEPTH} levels", id="brackets"),
        pytest.param("a:\n" + "- " * 3000, f"nested deeper than {MOST_DEPTH} levels", id="dashes"),
        pytest.param("? " * 3000, f"nested deeper than {MOST_DEPTH} levels", id="question marks"),
        pytest.param(f"a: [{'1,' * 11_000}]\n", f"more than {MOST_VALUES} values", id="many values"),
        pytest.param("a: " + "9" * 5000, "a number of more than 64 characters", id="many digits"),
        pytest.param("a: 0x" + "f" * 20, "a whole number of more than 64 bits", id="a large hexadecimal number"),
        pytest.param("a: 9223372036854775808", "a whole number of more than 64 bits", id="two to the 63rd"),
        pytest.param("a: 2001-13-45", "not valid YAML: month must be in", id="a 13th month"),
        pytest.param("%YAML 1.1\n---\na: 1:59:59\n", "only YAML 1.2 is read", id="numbers of base sixty"),
        pytest.param("a: !!python/object:os.system x", "the tag .* is not read", id="a tag"),
        pytest.param("a: !!binary x", "the tag .* is not read", id="a tag of YAML's own"),
        pytest.param('a: "\\0"', "a text with a NUL", id="a NUL"),
        pytest.param('a: "\\ud800"', "half of a surrogate pair", id="half a character"),
        pytest.param('a: "\\UFFFFFFFF"', "not valid YAML", id="no character at all"),
        pytest.param("{a: b}: c", "a key must be a single value", id="a mapping as key"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a}", "merge keys", id="a merge key"),
    ],
)
def test_text_beyond_a_bound_is_refused_by_its_rule(text: str, rule: str) -> None:
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


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([*"[]{}:,-?&*!|>'\"%@` \n\t#1e9x0~<.", "\\x", "\\ud800", "---\n"]), max_size=60))
def test_any_text_is_read_or_refused_by_a_rule(parts: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        compose("".join(parts), Path("drawn.yaml"))
