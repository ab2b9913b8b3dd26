"""The border between Python and the emulated C library: argument forms and result shapes of every function.

The vendor's module is a thin C extension: it parses its arguments with a format string, and builds its result from a
second one [inferred for 8.5.0 from the binding's source of 2026, where it is open]. Both strings stand at each function
here. A wrong count is Python's own TypeError for such a string, "function takes exactly 2 arguments (1 given)"; a wrong
type is "<name> args parse failed". Functions whose first string is empty never look at their arguments.

    arguments   k pointer or size (int only, modulo 2^64)   K the same   i C int   I unsigned   s text   O any
                | the rest is optional
    result      one letter a value: k I i int, K int, s text, f float, d dict, l list, n nothing; a last `r` is the
                return code

A function gives its values alone, or nothing; `Failed` becomes the code, with a null for each value. A function of
form `r` may also give a code.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.errors import Failed

_NULLS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys("kKiI", int),
    **{"s": lambda: None, "f": float, "n": lambda: None, "d": dict, "l": list},
}
_BITS = {"k": 64, "K": 64, "I": 32}
CALLS: dict[str, tuple[str, str]] = {}
"""Every function by its public name → the forms of its arguments and of its result."""
FUNCTIONS: dict[str, dict[str, Any]] = {"": {}, "rt": {}, "mdl": {}, "util": {}}
"""Module of `acl`, '' for its top → name → function."""


def call(
    place: str, takes: str, gives: str, *, name: str = "", device: bool = True, missing: object = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function: put the argument checks of `takes` before it, and give what comes of it in the shape of
    `gives`.

    Args:
        place: its module, see `FUNCTIONS`.
        name: where it is not the function's own.
        device: whether the call needs a working device; others still answer when it is lost.
        missing: what a function without a code gives where it fails; None for the null of its form.
    """
    kinds, values = takes.replace("|", ""), gives.removesuffix("r")
    least, coded = takes.index("|") if "|" in takes else len(kinds), gives.endswith("r")

    def failed(code: int) -> Any:
        nulls = tuple(_NULLS[value]() for value in values)
        if coded:
            return (*nulls, code) if nulls else code
        return nulls[0] if len(nulls) == 1 else nulls

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        named = name or function.__name__
        public = ".".join(filter(None, ("acl", place, named)))

        @functools.wraps(function)
        def called(*given: Any) -> Any:
            if kinds and not least <= len(given) <= len(kinds):
                word = "exactly" if least == len(kinds) else "at least" if len(given) < least else "at most"
                wanted = least if len(given) < least else len(kinds)
                many = f"{word} {wanted} argument{'' if wanted == 1 else 's'} ({len(given)} given)"
                raise TypeError(f"function takes {many}")
            arguments = [_checked(kind, value, public) for kind, value in zip(kinds, given, strict=False)]
            if errors.armed and (code := errors.strike(public, device)):
                return failed(code)
            try:
                result = function(*arguments)
            except Failed as error:
                return failed(error.code) if coded or missing is None else missing
            if gives != "r":
                return result if not coded else (result, 0) if len(values) == 1 else (*result, 0)
            return result or 0

        CALLS[public], FUNCTIONS[place][named] = (takes, gives), called
        return called

    return wrap


def ask(place: str, takes: str = "k", gives: str = "k", missing: object = None, **answers: Callable[..., Any]) -> None:
    """Declare functions that only ask for something."""
    for name, function in answers.items():
        call(place, takes, gives, name=name, device=False, missing=missing)(function)


def module_of(place: str) -> ModuleType:
    made = ModuleType(f"{__name__.rpartition('.')[0]}.{place}", f"The module `acl.{place}`.")
    names = list(FUNCTIONS[place])
    vars(made).update(FUNCTIONS[place], __all__=names, __dir__=lambda: sorted(names))
    return made


def _checked(kind: str, value: Any, public: str) -> Any:
    if kind == "O" or (kind == "s" and isinstance(value, str)):
        return value
    # no __index__ for k and K: the vendor's format letters take Python's int only
    if kind != "s" and (isinstance(value, int) or (kind in "iI" and hasattr(value, "__index__"))):
        number = operator.index(value)
        if kind != "i":
            return number & ((1 << _BITS[kind]) - 1)
        if -(2**31) <= number < 2**31:
            return number
    wanted = "text" if kind == "s" else "an int of 32 bits" if kind == "i" else "an int"
    raise TypeError(f"{public} args parse failed: {value!r} is a {type(value).__name__}, not {wanted}")
