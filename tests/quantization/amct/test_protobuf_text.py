"""Protobuf text: the grammar, measured against protobuf's own parser and printer."""

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantization.amct_files import PEERS
from workbench.quantization.amct.protobuf_text import Field, parse, quoted, shortest, string
from workbench.values.errors import ConfigError

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def only(text: str) -> Field:
    (field,) = parse(text).fields
    return field


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\nb\t\"\'\\"', "a\nb\t\"'\\"),
        (r'"\344\270\255"', "中"),
        (r'"\xe4\xb8\xad中"', "中中"),
        (r'"中\U0001F600"', "中😀"),
        ('"#; }"', "#; }"),
    ],
)
def test_escapes_in_strings_mean_what_protobuf_says(written: str, meant: str) -> None:
    assert string(only(f"a: {written}")) == meant
    peer = text_format.Parse(f"key: {written}", PEERS["MapFiledEntry"]())
    assert peer.key == meant


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a", 1, "no ':'"),
        ("a 1", 1, "no ':'"),
        ("a: 1\nb:", 2, "end of the file"),
        ("\na { b: 1", 2, "has no '}'"),
        ("a < b: 1 }", 1, "field name"),
        ('a: 1\nb: "x', 2, "unfinished"),
        ("a: [1 2]", 1, "in a list"),
        ("a: [1,]", 1, "where a value"),
        ("a: 1 }", 1, "field name"),
        ("a: @", 1, "'@'"),
        ("1: 2", 1, "field name"),
        ("a: 1.2.3", 1, "where a value must"),
        ('a: "\\q"', 1, "no escape"),
        ('a: "\\xff"', 1, "no UTF-8"),
        ("a {" * 200, 1, "deep"),
    ],
)
def test_text_outside_the_grammar_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse(text, file="quant.cfg")

    assert (caught.value.file, caught.value.line) == ("quant.cfg", line)


@given(st.text(st.characters(blacklist_categories=["Cs"])))
@settings(max_examples=300)
def test_strings_are_printed_as_protobuf_prints_utf8_and_come_back(text: str) -> None:
    peer = PEERS["MapFiledEntry"](key=text)

    assert f"key: {quoted(text)}\n" == text_format.MessageToString(peer, as_utf8=True)
    assert string(only(f"key: {quoted(text)}")) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@settings(max_examples=500)
def test_floats_are_printed_with_protobufs_digits(value: float) -> None:
    peer = PEERS["SingleLayerRecord"](scale_d=value)

    assert f"scale_d: {shortest(value)}\n" == text_format.MessageToString(peer)
    assert np.float32(float(shortest(value))) == np.float32(value)
