"""The last code with which a call of the runtime failed in this thread, for `acl.rt.get_last_error`.

The runtime keeps it per thread; a call that succeeds leaves it as it is (hicann/runtime, inner_thread_local.cpp and
api_global_err.cc). What AscendCL or the graph engine refuse before they ask the runtime (1000xx, 145xxx) is not in it.
"""

from __future__ import annotations

import threading

_THREADS = threading.local()
_OF_THE_RUNTIME = (107, 207, 507)
"""Thousands of the codes that the runtime gives (pyacl.md §2.6)."""


def note(code: int) -> None:
    """Remember a code that a call gives, if the runtime is where it comes from."""
    if code // 1000 in _OF_THE_RUNTIME:
        _THREADS.code = code


def peek() -> int:
    code: int = getattr(_THREADS, "code", 0)
    return code


def take() -> int:
    """The code, which is forgotten: 0 until the next failure."""
    code = peek()
    _THREADS.code = 0
    return code
