"""The simulation's loop in machine code where numba (extra [fast]) is installed, and interpreted where it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def machine_code(function: _Function) -> _Function:
    """The function itself, compiled at its first call (some seconds) and read from numba's cache on disk later.

    It may read and write the arrays it is given, and make none: their references are not counted (`_nrt`). Counting
    them at every call of a function within, atomically, takes more than half of the time otherwise.
    """
    try:
        import numba
    except ImportError:
        return function
    compiled: Callable[..., Any] = numba.njit  # its types leave `_nrt` out
    try:
        return cast(_Function, compiled(cache=True, nogil=True, _nrt=False, forceinline=True)(function))
    except RuntimeError:  # numba finds no place for its cache: neither this folder nor the user's can be written
        return cast(_Function, compiled(nogil=True, _nrt=False, forceinline=True)(function))


def is_compiled(function: Callable[..., Any]) -> bool:
    return hasattr(function, "py_func")


def say_once_that_it_is_slow() -> None:
    global _said
    if not _said:
        _said = True
        _log.warning(
            "numba is not installed, so services are simulated by the interpreter: the same figures, about "
            "fifty times slower. Install int8-workbench[fast]."
        )


_said = False
