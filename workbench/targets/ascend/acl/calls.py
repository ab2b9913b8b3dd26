"""Checked calls into pyACL: one function for each of its three return shapes (pyacl.md §1), and taking them back.

A function of pyACL returns a bare code (`do`), a bare value (`read`), or a tuple with the code last (`take`). Mixing
them up is the commonest mistake (pyacl.md §4, rows 1-6), so nothing else in the workbench calls `acl` itself.

Codes become errors by the table `codes.json`, with pyACL's own text, which is asked for right behind the failing call
in the same thread: it is kept per thread, and reading clears it (pyacl.md §1.1). Names in the table are those of the
8.5.0 headers without ACL_ERROR_, ACL_ERROR_RT_ or ACL_ERROR_GE_ (runtime v8.5.0 include/external/acl/acl_base_rt.h,
acl_base_mdl.h, error_codes/rt_error_codes.h, ge_error_codes.h), meanings those of the vendor's page aclError. Which
codes call for which reaction is [inferred] (pyacl.md §2.6, retry policy); that an exception in a kernel is answered
like a time-out is our addition to it.
"""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError

Kind = Literal[
    "success", "caller", "model", "memory", "busy", "retry_process", "device_lost", "environment", "internal"
]
"""Who can act: 'caller' the calling program or what it was fed; 'model' whoever compiled this model; 'memory' and
'busy' whoever else uses the device, later; 'retry_process' nobody inside this process: its runtime has to be built
anew; 'device_lost' and 'environment' the machine's administrator; 'internal' the vendor."""

SUCCESS = 0
INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMeaning:
    """One return code.

    Attributes:
        remedy: what to do about it, a sentence or two.
    """

    code: int
    name: str
    meaning: str
    remedy: str
    kind: Kind


def describe(code: int) -> CodeMeaning:
    """The meaning of a code; one that is in no table is told by its first digit, as the vendor groups them."""
    known = meanings().get(code)
    if known is not None:
        return known
    kind = _KIND_BY_DIGIT.get(code // 100000, "internal")
    return CodeMeaning(
        code=code,
        name="UNKNOWN",
        meaning="a code that is not in CANN 8.5.0",
        remedy=f"Look it up in the manual of the CANN version installed. {_table()['remedies'][kind]}",
        kind=kind,
    )


_KIND_BY_DIGIT: Mapping[int, Kind] = {1: "caller", 2: "environment", 3: "caller", 5: "internal"}
"""100000 to 199999 caller, 2xxxxx environment or resources, 3xxxxx business, 5xxxxx internal (vendor's rules 1-4)."""


@functools.cache
def _table() -> Mapping[str, Any]:
    """Remedies by kind, and codes by the part of CANN that returns them."""
    from workbench.values.documents.json_reader import loads  # what only an error needs

    found: Mapping[str, Any] = loads(Path(__file__).with_name("codes.json").read_bytes())
    return found


@functools.cache
def meanings() -> Mapping[int, CodeMeaning]:
    """Every code of CANN 8.5.0: AscendCL, runtime, graph engine; with the remedy of its kind where it has none."""
    table = _table()
    rows = [{"remedy": table["remedies"][row["kind"]], **row} for part in table["codes"].values() for row in part]
    return {row["code"]: CodeMeaning(**row) for row in rows}


# --- checked calls ----------------------------------------------------------------------------------------------------


_LONGEST_REASON = 800
"""Characters of pyACL's text that a message quotes; with its trace it can fill a screen."""

_NO_CODE = 500000
"""What stands for a failure that was told by a null value."""

_STOPPING = ("device_lost", "environment")
_IN_DOUBT = ("retry_process", "device_lost")
_TRANSIENT = ("memory", "busy", "retry_process", "internal")


_doubt = ""


def library() -> ModuleType:
    """The module `acl`, imported when first needed.

    Raises:
        ToolchainError: it is not installed, or a library it needs is missing.
    """
    loaded = sys.modules.get("acl")
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module("acl")
    except ImportError as error:
        raise ToolchainError(
            f"pyACL (the Python module `acl`) cannot be imported: {error}. Install the CANN toolkit and run "
            "`source <CANN>/set_env.sh` in the shell that starts the workbench."
        ) from error


def do(name: str, *arguments: Any, about: str = "", accept: Collection[int] = ()) -> int:
    """Call a function that returns a bare code, and return the code.

    Args:
        name: below `acl`, such as 'rt.free'.
        about: what it is done for, to begin the message with.
        accept: codes besides 0 that are no failure here.

    Raises:
        MeasureError, ToolchainError: any other code; by its kind, see `failure`.
    """
    code: int = _function(name)(*arguments)
    if code != SUCCESS:
        if code not in accept:
            raise failure(name, code, about)
        forget_reason()
    return code


def checked(name: str) -> Callable[..., None]:
    """`do` for one function, looked up once: for calls that stand between timed ones."""
    function = _function(name)

    def call(*arguments: Any) -> None:
        code = function(*arguments)
        if code != SUCCESS:
            raise failure(name, code)

    return call


def read(name: str, *arguments: Any, about: str = "", null: Collection[object] = (0, None, "")) -> Any:
    """Call a function that returns a bare value, and return it.

    Args:
        null: the values by which it tells that it failed: 0, None or '' mostly, -1 for data types.

    Raises:
        MeasureError: one of these came.
    """
    value = _function(name)(*arguments)
    if value in null:
        begin = f"{about}: " if about else ""
        raise MeasureError(
            f"{begin}acl.{name} gave {value!r}, which means that it failed.{_reason()} {describe(_NO_CODE).remedy}"
        )
    return value


def take(name: str, *arguments: Any, about: str = "", absent: int = SUCCESS) -> Any:
    """Call a function that returns a tuple with the code last, and return the rest: one value, or a tuple of several.

    Args:
        absent: code of a question whose answer is 'there is none': None then.

    Raises:
        MeasureError, ToolchainError: the code is not 0; by its kind, see `failure`.
    """
    *values, code = _function(name)(*arguments)
    if code == absent != SUCCESS:
        forget_reason()
        return None
    if code != SUCCESS:
        raise failure(name, code, about)
    return values[0] if len(values) == 1 else tuple(values)


def failure(name: str, code: int, about: str = "") -> WorkbenchError:
    """The error of a code that `acl.<name>` has just returned in this thread.

    ToolchainError where the device is lost or the machine is not fit; else MeasureError, transient where the same
    candidate may succeed later. Some failures leave the process's runtime in doubt: see `doubt`.
    """
    global _doubt  # the runtime is one for the whole process, and so is what is known of it
    if not isinstance(code, int):  # a tuple never equals 0: it would 'fail' for ever (pyacl.md §4, row 3)
        raise TypeError(f"acl.{name} returned {code!r} where a return code belongs")
    meaning = describe(code)
    if meaning.kind in _IN_DOUBT:
        _doubt = _doubt or f"{code} {meaning.name}"
    begin = f"{about}: " if about else ""
    text = f"{begin}acl.{name} failed with {code} ({meaning.name}): {meaning.meaning}.{_reason()} {meaning.remedy}"
    if meaning.kind in _STOPPING:
        return ToolchainError(text)
    return MeasureError(text, transient=meaning.kind in _TRANSIENT)


def doubt() -> str:
    """The first failure after which nothing of this process's runtime can be trusted; empty while there was none."""
    return _doubt


def clear_doubt() -> None:
    """The runtime was taken down: what failed in it says nothing about the next one."""
    global _doubt  # see `failure`
    _doubt = ""


def forget_reason() -> None:
    """Drop the text of a failure that is none, so that it is not quoted for the next one."""
    _function("get_recent_err_msg")()


def _reason() -> str:
    """pyACL's own words for the last failure of this thread, on one line; empty where it has none."""
    words = " ".join((_function("get_recent_err_msg")() or "").split())
    if not words:
        return ""
    shown = words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]} …"
    return f" CANN says: {shown}{'' if shown.endswith('.') else '.'}"


def _function(name: str) -> Callable[..., Any]:
    return _bound(library(), name)


@functools.lru_cache(maxsize=256)
def _bound(module: ModuleType, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = operator.attrgetter(name)(module)
    return found


def released(undo: ExitStack) -> WorkbenchError | None:
    """Release what was acquired, in reverse order, whatever fails on the way (pyacl.md §3.2); the first error, which is
    the cause of the others."""
    try:
        undo.close()
    except WorkbenchError as error:
        first: WorkbenchError = error
        while isinstance(first.__context__, WorkbenchError):
            first = first.__context__
        return first
    return None
