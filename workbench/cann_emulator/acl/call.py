"""The border between Python and the emulated C library: argument forms and result shapes of every function.

The vendor's module is a thin C extension: it parses its arguments with a format string, and builds its result from a
second one [inferred for 8.5.0 from the binding's source of 2026, where it is open]. Both strings stand at each function
here. A wrong count is Python's own TypeError for such a string, "function takes exactly 2 arguments (1 given)"; a wrong
type is "<name> args parse failed". Functions whose first string is empty never look at their arguments.

    arguments   k pointer or size (int only, modulo 2^64)   K the same   i C int   I unsigned   s text   O any   d float
                | the rest is optional
    result      one letter a value: k I i int, K int, s text, f float, d dict, l list, n nothing; a last `r` is the
                return code
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from workbench.cann_emulator.acl import faults, last_error

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NULL: dict[str, Any] = {"k": 0, "I": 0, "K": 0, "i": 0, "s": None, "f": 0.0, "n": None}
_PACKAGE = __name__.rpartition(".")[0]
CALLS: dict[str, tuple[str, str]] = {}
"""Every function by its public name → the forms of its arguments and of its result."""


def call(takes: str, gives: str, *, device: bool = True, told: bool = True) -> Callable[[_Function], _Function]:
    """Put the argument checks of `takes` before a function, and let requested faults fail it in the shape of `gives`.

    Args:
        device: whether the call needs a working device; others still answer when it is lost.
        told: whether a code that the function gives is a failure, which `acl.rt.get_last_error` then tells.
    """

    def wrap(function: _Function) -> _Function:
        public = f"acl.{place(function.__module__)}{function.__name__}"
        CALLS[public] = (takes, gives)
        return _compiled(function, public, takes, gives, device=device, told=told)

    return wrap


def place(module: str) -> str:
    """'rt.' for the modules rt_*, '' for top_*: where the functions of one of these modules appear."""
    stem = module.rpartition(".")[2].partition("_")[0]
    return "" if stem == "top" else f"{stem}."


def declared(space: dict[str, Any], *modules: ModuleType) -> list[str]:
    """Names of the functions that `call` declared in these modules, which are put into the globals `space`."""
    found = {name: value for module in modules for name, value in vars(module).items() if _shown(module, name)}
    space.update(found)
    return list(found)


def _shown(module: ModuleType, name: str) -> bool:
    return f"acl.{place(module.__name__)}{name}" in CALLS


def site() -> tuple[str, int]:
    """File and line of the caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _compiled(function: _Function, public: str, takes: str, gives: str, *, device: bool, told: bool) -> _Function:
    """The wrapper as generated code: these calls stand between the timed ones, a generic parser would be seen."""
    kinds = takes.replace("|", "")
    required = takes.index("|") if "|" in takes else len(kinds)
    names = [f"a{i}" for i in range(len(kinds))]
    lines = [f"def {function.__name__}(*given):"]
    if required == len(kinds) > 0:
        lines += [f"    if len(given) != {required}: _miscounted(len(given))", f"    {', '.join(names)}, = given"]
    elif kinds:
        lines += [f"    if not {required} <= len(given) <= {len(kinds)}: _miscounted(len(given))"]
        lines += [f"    {', '.join(names)}, = given + (_missing,) * ({len(kinds)} - len(given))"]
    for i, (a, kind) in enumerate(zip(names, kinds, strict=True)):
        guard = "" if i < required else f"{a} is not _missing and "
        if kind in "kK":
            lines += [f"    if {guard}{a}.__class__ is not int: {a} = _whole({a})"]
            lines += [f"    if {guard}not 0 <= {a} < 18446744073709551616: {a} &= 18446744073709551615"]
        elif kind in "iI":
            lines += [f"    if {guard}{a}.__class__ is not int: {a} = _index({a})"]
            low, high = (-(2**31), 2**31) if kind == "i" else (0, 2**32)
            wrong = f"{a} &= 4294967295" if kind == "I" else "_refuse()"
            lines += [f"    if {guard}not {low} <= {a} < {high}: {wrong}"]
        elif kind == "s":
            lines += [f"    if {guard}not isinstance({a}, str): _refuse()"]
        elif kind == "d":
            lines += [f"    if {guard}not isinstance({a}, (int, float)): _refuse()"]
    lines += ["    if _armed:", "        code = _strike(_name, _device)"]
    lines += ["        if code:", "            _note(code)", "            return _failed(code)"]
    passed = [*names[:required], f"*(a for a in ({', '.join(names[required:])},) if a is not _missing)"]
    called = f"_function({', '.join(passed if required < len(names) else names)})"
    if told and "r" in gives:
        lines += [f"    result = {called}", f"    code = {'result' if gives == 'r' else 'result[-1]'}"]
        lines += ["    if code: _note(code)", "    return result"]
    else:
        lines += [f"    return {called}"]

    def miscounted(given: int) -> None:
        exactly, most = required == len(kinds), len(kinds)
        wanted = required if given < required else most
        word = "exactly" if exactly else "at least" if given < required else "at most"
        raise TypeError(f"function takes {word} {wanted} argument{'' if wanted == 1 else 's'} ({given} given)")

    def refuse() -> None:
        raise TypeError(f"{public} args parse failed")

    def whole(value: object) -> int:
        if not isinstance(value, int):  # no __index__: the vendor's format letter takes Python's int only
            raise TypeError(f"{public} args parse failed: {value!r} is a {type(value).__name__}, not an int")
        return int(value)

    def index(value: object) -> int:
        try:
            return operator.index(value)  # type: ignore[arg-type]  # what is no index is refused below
        except TypeError:
            raise TypeError(f"{public} args parse failed: {value!r} is a {type(value).__name__}, not an int") from None

    space: dict[str, Any] = {
        **{"__name__": _PACKAGE + ".calls", "_function": function, "_name": public, "_device": device},
        **{"_armed": faults.armed, "_strike": faults.strike, "_failed": _failure(gives), "_missing": object()},
        **{"_refuse": refuse, "_whole": whole, "_index": index, "_miscounted": miscounted, "_note": last_error.note},
    }
    exec(compile("\n".join(lines), f"<{public}>", "exec"), space)
    wrapped = space[function.__name__]
    wrapped.__doc__ = function.__doc__
    wrapped.__module__ = function.__module__
    wrapped.__wrapped__ = function
    return wrapped  # type: ignore[no-any-return]  # the generated function has the signature of the one it wraps


def _failure(gives: str) -> Callable[[int], Any]:
    """How a function of this result shape says that it failed."""
    values = [c for c in gives if c != "r"]
    if "r" not in gives:
        return lambda code: _null(values[0]) if len(values) == 1 else tuple(map(_null, values))
    if not values:
        return lambda code: code
    return lambda code: (*(_null(v) for v in values), code)


def _null(kind: str) -> Any:
    if kind == "d":
        return {}
    return [] if kind == "l" else _NULL[kind]
