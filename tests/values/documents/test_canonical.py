"""Canonical JSON: one text per value, and back."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.values.documents.canonical import DecodeError, canonical_json, decode, digest, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    sizes: tuple[int, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    table: Mapping[str, float]
    flag: bool = False


@given(
    st.builds(
        Outer,
        inner=st.builds(Inner, sizes=st.lists(st.integers()).map(tuple), note=st.none() | st.text()),
        table=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
        flag=st.booleans(),
    )
)
def test_what_is_encoded_decodes_to_an_equal_value(value: Outer) -> None:
    assert decode(Outer, encode(value)) == value


def test_a_digest_follows_neither_the_order_of_keys_nor_the_process() -> None:
    code = 'from workbench.values.candidate import Candidate; print(Candidate(target="onnxruntime").id)'
    command = [sys.executable, "-c", code]
    ids = {subprocess.check_output(command, env={"PYTHONHASHSEED": seed}, timeout=300) for seed in ("1", "2")}

    assert len(ids) == 1
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_data_that_does_not_fit_is_refused_with_its_path() -> None:
    for data, message in (
        ({"inner": {"sizes": [1]}, "table": {}, "flagg": True}, "unknown key 'flagg'"),
        ({"inner": {"sizes": [1]}}, "key 'table' is missing"),
        ({"inner": {"sizes": ["1"]}, "table": {}}, r"Outer.inner.sizes\[0\]: expected int, got '1'"),
        ({"inner": {"sizes": [True]}, "table": {}}, "expected int, got True"),
        ({"inner": [], "table": {}}, "Outer.inner: expected an object, got list"),
        ({"inner": {"sizes": 3}, "table": {}}, "expected a list, got int"),
    ):
        with pytest.raises(DecodeError, match=message):
            decode(Outer, data)


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no canonical JSON form"):
        encode({1, 2})
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON compliant"):
            canonical_json({"x": number})
    with pytest.raises(DecodeError, match=r"x: a whole number of 1329 bits is no float"):
        decode(float, 10**400, "x")
