"""Every function of the tables in pyacl.md §1 is there, takes what it documents and gives its shape, failing too.

But those of AIPP with parameters at run time, which no emulated model takes.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.cann_emulator.acl.library import ok, taken, text
from tests.reference_pages import acl_calls
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.call import CALLS

DOCUMENTED = acl_calls()
NOT_EMULATED = {
    "rt.get_device_utilization_rate",
    "mdl.execute_v2",
    *(f"mdl.{n}_dump" for n in ("init", "set", "finalize")),
}


def function(name: str) -> Callable[..., Any]:
    found: Any = acl
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    return found  # type: ignore[no-any-return]  # looked up by name


def test_each_documented_function_is_there_with_its_shape() -> None:
    assert len(DOCUMENTED) > 70
    for name, values in DOCUMENTED.items():
        if name not in NOT_EMULATED:
            gives = CALLS[f"acl.{name}"][1]
            assert function(name).__wrapped__  # type: ignore[attr-defined]  # set by `call`
            assert len(gives.replace("n", "")) == values, name
    assert not [name for name in NOT_EMULATED if f"acl.{name}" in CALLS]


SAMPLES: dict[str, Any] = {"k": 0, "K": 0, "i": 0, "I": 0, "s": "x", "O": b"", "d": 0.0}


def test_each_function_gives_its_shape_when_it_fails_on_request(device: int) -> None:
    """So that a program sees the same kind of result whatever goes wrong."""
    for name, (takes, gives) in CALLS.items():
        errors.arm(f"{name}:1=507011")
        result = function(name.removeprefix("acl."))(*(SAMPLES[kind] for kind in takes.replace("|", "")))
        if "r" not in gives:
            assert result in (0, None, 0.0, (0, []), []), name
        elif gives == "r":
            assert result == 507011, name
        else:
            assert isinstance(result, tuple)
            assert (len(result), result[-1]) == (len(gives), 507011), name


def test_every_public_function_was_declared_with_its_forms_and_every_declared_one_is_public() -> None:
    modules = (acl.rt, acl.mdl, acl.util, acl.prof)
    named = [(module, f"{module.__name__.rpartition('.')[2]}.") for module in modules]
    public = [
        f"acl.{prefix}{name}"
        for module, prefix in (*named, (acl, ""))
        for name in dir(module)
        if not isinstance(getattr(module, name), types.ModuleType | str)
    ]
    assert sorted(public) == sorted(CALLS)


def test_wrong_argument_types_are_type_errors(device: int) -> None:
    """Table of mistakes, pyacl.md §4 rows 1-6 and 23; the type is [inferred], §10."""
    for name, (forms, _) in CALLS.items():
        takes = forms.replace("|", "")
        if takes.strip("O"):
            with pytest.raises((TypeError, ValueError)):
                function(name.removeprefix("acl."))(*[(0, 0) if kind in "kKiId" else 5 for kind in takes])


# ---- faults ----


def test_the_nth_call_of_a_name_fails_with_the_code(device: int) -> None:
    errors.arm("acl.rt.malloc:2=207001; acl.rt.create_stream:1+=207008")
    assert [acl.rt.malloc(8, 0)[1] for _ in range(3)] == [0, 207001, 0]
    assert [acl.rt.create_stream()[1] for _ in range(3)] == [207008] * 3
    assert "on request" in text()


def test_a_lost_device_fails_every_later_call_that_needs_it(device: int) -> None:
    pointer = taken(acl.rt.malloc(8, 0))
    errors.arm("acl.rt.memset:1=lost")
    assert acl.rt.malloc(8, 0)[1] == 0
    assert acl.rt.memset(pointer, 8, 0, 8) == 507899
    assert acl.rt.malloc(8, 0) == (0, 507899)
    assert acl.rt.synchronize_stream(0) == 507899
    assert acl.rt.reset_device(0) == 507899
    assert "EL0001" in text()
    assert acl.mdl.create_desc() != 0
    ok(acl.destroy_data_buffer(acl.create_data_buffer(0, 0)))
