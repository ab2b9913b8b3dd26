from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.targets.ascend.acl.dtypes import TYPES, acl_type, from_device, to_device
from workbench.values.errors import MeasureError

CODES = {kind.name: code for code, kind in TYPES.items()}
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def stored(name: str) -> Any:
    return acl_type(CODES[name], "x")


@pytest.mark.parametrize("code", [-1, 5, 13, 29, 30, 33, 35, 99])
def test_a_type_that_no_array_holds_is_refused_with_the_tensors_name(code: int) -> None:
    with pytest.raises(MeasureError, match=rf"'ids' has pyACL data type {code} "):
        acl_type(code, "ids")


@given(hnp.arrays(np.int64, st.integers(1, 8)), st.sampled_from(INTEGERS))
@settings(max_examples=200, deadline=None)
def test_integers_arrive_whole_or_not_at_all(values: np.ndarray[Any, Any], name: str) -> None:
    limits = np.iinfo(name)
    fits = all(limits.min <= int(v) <= limits.max for v in values)
    if fits:
        assert to_device(values, stored(name), "ids").tolist() == values.tolist()
    else:
        worst = [int(v) for v in values if not limits.min <= int(v) <= limits.max]
        with pytest.raises(MeasureError, match="'ids' holds") as caught:
            to_device(values, stored(name), "ids")
        assert any(str(v) in str(caught.value) for v in worst)


@given(hnp.arrays(np.float32, st.integers(1, 8)))
@settings(max_examples=200, deadline=None)
def test_floats_are_rounded_but_never_overflow_in_silence(values: np.ndarray[Any, Any]) -> None:
    for name in ("float16", "bfloat16"):
        largest = np.abs(values[np.isfinite(values)]).max(initial=0)
        if largest >= (65520 if name == "float16" else np.uint32(0x7F7F8000).view(np.float32)):  # rounds to infinity
            with pytest.raises(MeasureError, match=r"'mask' holds .* overflows"):
                to_device(values, stored(name), "mask")
            continue
        there = to_device(values, stored(name), "mask")
        back = from_device(there, stored(name), np.dtype(np.float32), "mask")
        assert back.dtype == np.float32
        assert np.array_equal(np.isnan(values), np.isnan(back))
        finite = np.isfinite(values)
        step = 2.0**-11 if name == "float16" else 2.0**-8
        smallest = 2.0**-25 if name == "float16" else 2.0**-133
        assert np.all(np.abs(back[finite] - values[finite]) <= np.maximum(np.abs(values[finite]) * step, smallest))
        assert np.array_equal(back[~finite], values[~finite], equal_nan=True)
