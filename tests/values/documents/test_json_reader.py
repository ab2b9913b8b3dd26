"""JSON of others is read strictly: what Python's reader lets through, or stumbles over, is refused by its rule."""

from pathlib import Path

import pytest

from workbench.values.documents.json_reader import MOST_DEPTH, JsonError, loads, parse_json, read_json
from workbench.values.errors import ConfigError


def test_what_is_beyond_a_bound_is_refused_by_its_rule() -> None:
    for text, rule in (
        ("[" * 100_000, "nested deeper than"),
        ("[" * 65 + "]" * 65, f"nested deeper than {MOST_DEPTH} levels"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested deeper than"),
        ('{"a": 1, "a": 2}', "'a' is given more than once"),
        ("[NaN]", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("1e999", "beyond a double"),
        ("9" * 100_000, "has more than 64 bits"),
        ("18446744073709551616", "has more than 64 bits"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ('{"\\uDfff": 1}', "half of a surrogate pair"),
        (b'"\xff"', "byte 0xff is not UTF-8"),
        ('"a\nb"', "Invalid control character"),
        ("", "Expecting value"),
    ):
        with pytest.raises(JsonError, match=rule):
            loads(text)


def test_what_is_within_the_bounds_is_read_as_it_is() -> None:
    assert loads("[" * 64 + "]" * 64) is not None
    assert loads("[18446744073709551615, -9223372036854775808, 1e308, 0.1]") == [2**64 - 1, -(2**63), 1e308, 0.1]
    assert loads('"\\ud83d\\ude00 \\ud55c"') == "\U0001f600 한"
    assert loads(b'\xef\xbb\xbf{"a": null}') == {"a": None}
    assert loads('{"a": 1, "a": 2}', once=False) == {"a": 2}


def test_an_error_has_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows\.jsonl:7: not valid JSON: Expecting value, column 1"):
        parse_json("x", file="rows.jsonl", line=7)
    (tmp_path / "labels.json").write_text('{\n"a": 1,\n"b": }')
    with pytest.raises(ConfigError, match=r"labels\.json:3: not valid JSON"):
        read_json(tmp_path / "labels.json")
    with pytest.raises(ConfigError, match="at most 10 bytes are read"):
        read_json(tmp_path / "labels.json", limit_bytes=10)
