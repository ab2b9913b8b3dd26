import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.reference_pages import acl_codes, acl_tables
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl.calls import describe, meanings
from workbench.targets.ascend.acl.loaded_model import converted
from workbench.values.errors import MeasureError, ToolchainError


def test_every_code_becomes_an_error_by_who_can_act(acl: ModuleType) -> None:
    for code in sorted(set(meanings()) - {0}):
        kind, error = describe(code).kind, acl_calls.failure("rt.free", code)

        assert f"failed with {code} ({describe(code).name})" in str(error)
        if kind in ("device_lost", "environment"):
            assert isinstance(error, ToolchainError)
        else:
            assert isinstance(error, MeasureError)
            assert error.transient is (kind in ("memory", "busy", "retry_process", "internal"))
        assert bool(acl_calls.doubt()) is (kind in ("retry_process", "device_lost"))
        acl_calls.clear_doubt()


def test_the_table_holds_every_code_and_name_that_the_reference_page_prints_and_no_other() -> None:
    assert set(meanings()) == acl_codes()
    pairs = re.findall(r"\| (\d{6}) \| ([A-Z][A-Z0-9_]{4,})", acl_tables())
    assert len(pairs) > 60
    assert [(code, name) for code, name in pairs if not describe(int(code)).name.startswith(name)] == []


def test_the_retry_policy_of_the_reference_decides_and_later_codes_by_their_first_digit() -> None:
    for listed, kind in (
        ("207001 207018 245000", "memory"),
        ("507046 507011 507014 507017 507034 507048", "retry_process"),
        ("507010 507053 507054 507055 507056 507899 507901", "device_lost"),
        ("207004 207006", "environment"),
        ("100000 107000 107002 107003 145003 145012 145013", "caller"),
    ):
        assert {describe(int(code)).kind for code in listed.split()} == {kind}
    for code, kind in ((107555, "caller"), (207555, "environment"), (507555, "internal"), (7, "internal")):
        meaning = describe(code)
        assert (meaning.name, meaning.kind) == ("UNKNOWN", kind)
        assert "8.5.0" in meaning.meaning


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@given(hnp.arrays(np.int64, st.integers(1, 8)), st.sampled_from(INTEGERS))
@settings(max_examples=200, deadline=None)
def test_integers_arrive_whole_or_not_at_all(values: np.ndarray[Any, Any], name: str) -> None:
    limits = np.iinfo(name)
    fits = all(limits.min <= int(v) <= limits.max for v in values)
    if fits:
        assert converted(values, np.dtype(name), "ids").tolist() == values.tolist()
    else:
        worst = [int(v) for v in values if not limits.min <= int(v) <= limits.max]
        with pytest.raises(MeasureError, match="'ids' holds") as caught:
            converted(values, np.dtype(name), "ids")
        assert any(str(v) in str(caught.value) for v in worst)


@given(hnp.arrays(np.float32, st.integers(1, 8)))
@settings(max_examples=200, deadline=None)
def test_floats_are_rounded_but_never_overflow_in_silence(values: np.ndarray[Any, Any]) -> None:
    for name in ("float16", "bfloat16"):
        largest = np.abs(values[np.isfinite(values)]).max(initial=0)
        if largest >= (65520 if name == "float16" else np.uint32(0x7F7F8000).view(np.float32)):  # rounds to infinity
            with pytest.raises(MeasureError, match=r"'mask' holds .* overflows"):
                converted(values, np.dtype(name), "mask")
            continue
        there = converted(values, np.dtype(name), "mask")
        back = converted(there, np.dtype(np.float32), "mask")
        assert back.dtype == np.float32
        assert np.array_equal(np.isnan(values), np.isnan(back))
        finite = np.isfinite(values)
        step = 2.0**-11 if name == "float16" else 2.0**-8
        smallest = 2.0**-25 if name == "float16" else 2.0**-133
        assert np.all(np.abs(back[finite] - values[finite]) <= np.maximum(np.abs(values[finite]) * step, smallest))
        assert np.array_equal(back[~finite], values[~finite], equal_nan=True)
