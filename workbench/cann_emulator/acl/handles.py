"""Handles: every object of the library behind an int that clients pass around, and what a program left of them.

Handles are never used twice in a process, so a stale one is always recognised. Objects are kept by their class, so that
no call takes longer for how many of another class are alive. With CANN_EMULATOR_LEAKS=error `acl.finalize` raises
what is left, or what `reset_device` had to clean up, and a process that ends with something left has exit status 3; one
line tells how many objects of which kind.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from workbench.cann_emulator.acl import errors, memory
from workbench.cann_emulator.acl.errors import INVALID_PARAM, Failed

_NUMBERS = itertools.count(0x5A00_0000_1000, 0x40)  # looks like an address; no mapping of Linux lies there
LIVE: defaultdict[type, dict[int, Any]] = defaultdict(dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Made:
    """What a program makes and has a handle of."""

    KIND: ClassVar[str] = ""
    """Several of them, for the report of what a program left behind."""
    handle: int = 0
    own: bool = False
    """The library's own, which no program has to release."""


_Made = TypeVar("_Made", bound=Made)
_Object = TypeVar("_Object")


def give(thing: Made) -> int:
    """A new handle for `thing`; one that has its own keeps it."""
    thing.handle = thing.handle or next(_NUMBERS)
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
    """
    found = look(handle, kind)
    if found is not None:
        return found
    if handle and what:
        raise errors.undefined(f"{handle:#x} is no live {what}", code)
    if parameter:
        raise errors.refused(INVALID_PARAM, "EH0002", param=parameter)
    raise Failed(INVALID_PARAM)


def end(*place: Any) -> None:
    """Forget what `need` finds."""
    drop(need(*place).handle)


def drop(handle: int) -> None:
    for things in LIVE.values():
        things.pop(handle, None)


def alive(kind: type[_Object]) -> list[_Object]:
    return [thing for of, things in list(LIVE.items()) if issubclass(of, kind) for thing in list(things.values())]


# --- what a program left behind ---

_FAILS = os.environ.get("CANN_EMULATOR_LEAKS") == "error"
reclaimed: list[str] = []
"""Kinds of what `reset_device` released because the program had not."""


class LeakedObjects(AssertionError):
    """Objects were alive at `acl.finalize` (only with CANN_EMULATOR_LEAKS=error)."""


def left_behind() -> list[str]:
    """The kind of each object that the program made and did not release."""
    kept = [*LIVE.values(), *(arena.blocks for arena in memory.ARENAS)]
    pinned = ["blocks of page-locked host memory"] * len(memory.PINNED)
    return [thing.KIND for things in kept for thing in list(things.values()) if not thing.own] + pinned


def reclaim(thing: Any) -> None:
    """Note what is released because the program did not do it."""
    if not thing.own:
        reclaimed.append(thing.KIND)


def at_finalize() -> None:
    left, cleaned = left_behind(), list(reclaimed)
    reclaimed.clear()
    if _FAILS and (left or cleaned):
        raise LeakedObjects(_line("at acl.finalize", left) if left else _line("to acl.rt.reset_device", cleaned))


def _line(when: str, left: list[str]) -> str:
    told = ", ".join(f"{count} {what}" for what, count in Counter(left).items())
    return f"[emulated acl] left {when}: {told}"


def _at_exit() -> None:
    if left := left_behind():
        print(_line("at exit", left), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(3)  # the only way to another exit status from here


if _FAILS:
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=lambda: atexit.unregister(_at_exit))  # what the parent holds is no leak of it
