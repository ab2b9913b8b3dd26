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
from collections.abc import Callable, Iterable

_MODE = {"mode": os.environ.get("CANN_EMULATOR_LEAKS", "report")}
EXIT_STATUS = 3
_SITES = 3

Left = tuple[str, tuple[str, int]]
"""What it is, and file and line of the call that made it."""

COLLECTORS: list[Callable[[], Iterable[Left]]] = []
"""Each gives the objects of its kind that are alive."""
reclaimed: list[Left] = []
"""What `reset_device` released because the program had not."""


_TOLD: Counter[Left] = Counter()
"""What an earlier report named and is still alive."""


class LeakedObjects(AssertionError):
    """Objects were alive at `acl.finalize` (only with CANN_EMULATOR_LEAKS=error)."""


def alive() -> list[Left]:
    return [left for collect in COLLECTORS for left in collect()]


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


def _summed(left: Iterable[Left]) -> list[str]:
    kinds: dict[str, Counter[str]] = {}
    for what, (file, line) in left:
        kinds.setdefault(what, Counter())[f"{os.path.basename(file)}:{line}"] += 1  # noqa: PTH119  may be "<stdin>"
    lines = []
    for what, sites in kinds.items():
        shown = ", ".join(f"{place} ×{n}" if n > 1 else place for place, n in sites.most_common(_SITES))
        more = f" and {len(sites) - _SITES} more places" if len(sites) > _SITES else ""
        lines.append(f"{sum(sites.values())} {what}: {shown}{more}")
    return lines


def _at_exit() -> None:
    if report("exit") and _MODE["mode"] == "error":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_STATUS)  # the only way to another status from here


def _forget() -> None:
    """What the parent holds is no leak of a forked child."""
    if alive():
        COLLECTORS.clear()
    reclaimed.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forget)
