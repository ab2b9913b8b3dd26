"""What a program left behind, at `acl.finalize` and at exit: one block on stderr, with the lines that made it.

CANN_EMULATOR_LEAKS   report (default)   print, when something is left
                      error              also when only `reset_device` had to clean up; `finalize` raises, and a process
                                         that ends with something left has exit status 3
                      off                nothing
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

_MODE = {"mode": os.environ.get("CANN_EMULATOR_LEAKS", "report")}

Left = tuple[str, tuple[str, int]]
"""What it is, and file and line of the call that made it."""
Alive = tuple[str, tuple[str, int], Mapping[int, object], int]
"""The same, and where it can be seen to be alive: it is as long as the mapping has the key."""

COLLECTORS: list[Callable[[], Iterable[Alive]]] = []
"""Each gives the objects of its kind that are alive."""
reclaimed: list[Left] = []
"""What `reset_device` released because the program had not."""


_TOLD: Counter[Left] = Counter()
"""What an earlier report named and is still alive."""


class LeakedObjects(AssertionError):
    """Objects were alive at `acl.finalize` (only with CANN_EMULATOR_LEAKS=error)."""


def alive() -> list[Left]:
    return [(what, where) for collect in COLLECTORS for what, where, _, _ in collect()]


def report(moment: str) -> str:
    """Print what is left, and return the printed text; empty when nothing is."""
    mode = _MODE["mode"]
    now = Counter(alive())
    left = list((now - _TOLD).elements())
    _TOLD.clear()
    _TOLD.update(now)
    cleaned = list(reclaimed) if mode == "error" or left else []
    reclaimed.clear()
    if mode == "off" or not (left or cleaned):
        return ""
    lines = [f"[emulated acl] left at {moment} (CANN_EMULATOR_LEAKS=off hides this):"]
    lines += [f"  {line}" for line in _summed(left)]
    lines += [f"  {line} (released by acl.rt.reset_device)" for line in _summed(cleaned)]
    text = "\n".join(lines)
    print(text, file=sys.stderr, flush=True)
    return text


def at_finalize() -> None:
    text = report("acl.finalize")
    if text and _MODE["mode"] == "error":
        raise LeakedObjects(text)


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
    """

    def __init__(self, entries: list[Alive], fails: bool) -> None:
        self.entries, self.fails = entries, fails
        self.summed, self.write, self.leave = _summed, os.write, os._exit
        self.files = (sys.stdout, sys.stderr)

    def __del__(self) -> None:
        left = [(what, where) for what, where, among, key in self.entries if key in among]
        if not left:
            return
        for file in self.files:
            if file is not None and not file.closed:
                file.flush()
        text = "[emulated acl] left at exit (CANN_EMULATOR_LEAKS=off hides this):\n"
        self.write(2, (text + "".join(f"  {line}\n" for line in self.summed(left))).encode())
        if self.fails:
            self.leave(3)  # the only way to another exit status from here


def _at_exit() -> None:
    mode = _MODE["mode"]
    if mode == "off":
        return
    told = _TOLD.copy()
    entries = []
    for entry in (entry for collect in COLLECTORS for entry in collect()):
        if told[entry[:2]]:
            told[entry[:2]] -= 1
        else:
            entries.append(entry)
    if entries:
        sys._emulated_acl_last_look = _LastLook(entries, mode == "error")  # type: ignore[attr-defined]  # see there


def _forget() -> None:
    """What the parent holds is no leak of a forked child."""
    if alive():
        COLLECTORS.clear()
    reclaimed.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forget)
