"""What a program left behind, at `acl.finalize` and at exit: every object is told of once, with the line that made it.

CANN_EMULATOR_LEAKS   report (default)   print on stderr, when something is left
                      error              also when only `reset_device` had to clean up; `finalize` raises the report
                                         instead, and a process that ends with something left has exit status 3
                      off                nothing
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.cann_emulator.acl import handles, memory, pinned
from workbench.cann_emulator.acl.handles import Site

_MODE = {"mode": os.environ.get("CANN_EMULATOR_LEAKS", "report")}

Left = tuple[str, Site]
"""What it is, and where it was made."""
_Alive = tuple[str, Site, Mapping[int, Any], int]
"""The same, and where it can be seen to be alive: it is as long as the mapping has the key."""

REGISTRIES: list[Callable[[], Iterable[Mapping[int, Any]]]] = [
    lambda: list(handles.LIVE.values()),
    lambda: [pinned.PINNED],
    lambda: [arena.blocks for arena in memory.ARENAS],
]
"""Where objects are kept by a key; each says its KIND, its site, and whether it is reported."""
reclaimed: list[Left] = []
"""What `reset_device` released because the program had not."""
_TOLD: set[tuple[str, int]] = set()
"""What an earlier report named and is still alive: what it is, and its key."""


class LeakedObjects(AssertionError):
    """Objects were alive at `acl.finalize` (only with CANN_EMULATOR_LEAKS=error)."""


def alive() -> list[Left]:
    return [entry[:2] for entry in _entries()]


def reclaim(thing: Any) -> None:
    """Note what is released because the program did not do it."""
    if thing.reported:
        reclaimed.append((thing.KIND, thing.site))


def at_finalize() -> None:
    """Print what is left, or raise it.

    Raises:
        LeakedObjects: with CANN_EMULATOR_LEAKS=error.
    """
    mode, now = _MODE["mode"], _entries()
    left = [(what, where) for what, where, _, key in now if (what, key) not in _TOLD]
    _TOLD.clear()
    _TOLD.update((what, key) for what, _, _, key in now)
    cleaned = list(reclaimed) if mode == "error" or left else []
    reclaimed.clear()
    if mode == "off" or not (left or cleaned):
        return
    lines = ["[emulated acl] left at acl.finalize (CANN_EMULATOR_LEAKS=off hides this):"]
    lines += [f"  {line}" for line in _summed(left)]
    lines += [f"  {line} (released by acl.rt.reset_device)" for line in _summed(cleaned)]
    if mode == "error":
        raise LeakedObjects("\n".join(lines))
    print("\n".join(lines), file=sys.stderr, flush=True)


def _entries() -> list[_Alive]:
    return [
        (thing.KIND, thing.site, things, key)
        for registry in REGISTRIES
        for things in registry()
        for key, thing in list(things.items())
        if thing.reported
    ]


def _summed(left: Iterable[Left], sites_shown: int = 3) -> list[str]:
    """One line a kind. Uses no global name: it also runs when they are gone."""
    kinds: dict[str, dict[str, int]] = {}
    for what, (file, line) in left:
        place = f"{file.rpartition('/')[2]}:{line}"
        sites = kinds.setdefault(what, {})
        sites[place] = sites.get(place, 0) + 1
    lines = []
    for what, sites in kinds.items():
        ordered = sorted(sites.items(), key=lambda item: -item[1])[:sites_shown]
        shown = ", ".join(f"{place} ×{n}" if n > 1 else place for place, n in ordered)
        more = f" and {len(sites) - sites_shown} more places" if len(sites) > sites_shown else ""
        lines.append(f"{sum(sites.values())} {what}: {shown}{more}")
    return lines


class _LastLook:
    """Reports when the interpreter lets go of its last module: programs release in destructors of their globals.

    It lies in `sys`, which is cleared last; by then the globals of this package are gone, so it carries what it needs.
    A destructor that finalizes has told of some of it meanwhile.
    """

    def __init__(self, entries: list[_Alive], told: set[tuple[str, int]], fails: bool) -> None:
        self.entries, self.told, self.fails = entries, told, fails
        self.summed, self.write, self.leave = _summed, os.write, os._exit
        self.files = (sys.stdout, sys.stderr)

    def __del__(self) -> None:
        alive = [entry for entry in self.entries if entry[3] in entry[2]]
        left = [(what, where) for what, where, _, key in alive if (what, key) not in self.told]
        for file in self.files:
            if file is not None and not file.closed:
                file.flush()
        if left:
            text = "[emulated acl] left at exit (CANN_EMULATOR_LEAKS=off hides this):\n"
            self.write(2, (text + "".join(f"  {line}\n" for line in self.summed(left))).encode())
        if alive and self.fails:
            self.leave(3)  # the only way to another exit status from here


def _at_exit() -> None:
    mode = _MODE["mode"]
    entries = _entries() if mode != "off" else []
    if entries:
        look = _LastLook(entries, _TOLD, mode == "error")
        sys._emulated_acl_last_look = look  # type: ignore[attr-defined]  # see there


def _forget() -> None:
    """What the parent holds is no leak of a forked child."""
    if alive():
        REGISTRIES.clear()
    reclaimed.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forget)
