"""Handles: every object of the library behind an int that clients pass around.

Handles are never used twice in a process, so a stale one is always recognised.
"""

from __future__ import annotations

import itertools
from typing import TypeVar

_Object = TypeVar("_Object")
_NUMBERS = itertools.count(0x5A00_0000_1000, 0x40)  # looks like an address; no mapping of Linux lies there
LIVE: dict[int, object] = {}


def give(thing: object) -> int:
    """A new handle for `thing`."""
    handle = next(_NUMBERS)
    LIVE[handle] = thing
    return handle


def look(handle: int, kind: type[_Object]) -> _Object | None:
    """The object behind a handle; None for null, a stale handle, or one of another kind."""
    found = LIVE.get(handle)
    return found if isinstance(found, kind) else None


def drop(handle: int) -> None:
    del LIVE[handle]


def alive(kind: type[_Object]) -> list[_Object]:
    return [thing for thing in list(LIVE.values()) if isinstance(thing, kind)]
