"""Handles: every object of the library behind an int that clients pass around.

Handles are never used twice in a process, so a stale one is always recognised. Objects are kept by their class, so that
no call takes longer for how many of another class are alive.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from workbench.cann_emulator.acl import reason, strict
from workbench.cann_emulator.acl.codes import INVALID_PARAM, Failed

_NUMBERS = itertools.count(0x5A00_0000_1000, 0x40)  # looks like an address; no mapping of Linux lies there
LIVE: defaultdict[type, dict[int, Any]] = defaultdict(dict)
Site = tuple[str, int]
"""File and line of the call that made something."""


@dataclass(slots=True, kw_only=True, eq=False)
class Made:
    """What a program makes and has a handle of."""

    KIND: ClassVar[str] = ""
    """Several of them, for the report of what a program left behind."""
    site: Site = ("", 0)
    handle: int = 0

    @property
    def reported(self) -> bool:
        return bool(self.KIND)


_Made = TypeVar("_Made", bound=Made)
_Object = TypeVar("_Object")


def give(thing: Made) -> int:
    """A new handle for `thing`."""
    thing.handle = next(_NUMBERS)
    LIVE[type(thing)][thing.handle] = thing
    return thing.handle


def look(handle: int, kind: type[_Made]) -> _Made | None:
    """The object behind a handle; None for null, a stale handle, or one of another kind."""
    found: _Made | None = LIVE[kind].get(handle)
    return found


def need(handle: int, kind: type[_Made], parameter: str = "", what: str = "", code: int = INVALID_PARAM) -> _Made:
    """The object behind a handle.

    Args:
        parameter: the vendor's name of it, for the reason text.
        what: one of this kind, where using a stale handle has no documented result.
        code: for a stale handle; null gives 100000.

    Raises:
        Failed: there is none.
    """
    found = look(handle, kind)
    if found is not None:
        return found
    if handle and what:
        raise strict.undefined(f"{handle:#x} is no live {what}", code)
    if parameter:
        raise reason.refused(INVALID_PARAM, "EH0002", param=parameter)
    raise Failed(INVALID_PARAM)


def drop(handle: int) -> None:
    for things in LIVE.values():
        things.pop(handle, None)


def alive(kind: type[_Object]) -> list[_Object]:
    return [thing for of, things in list(LIVE.items()) if issubclass(of, kind) for thing in list(things.values())]
