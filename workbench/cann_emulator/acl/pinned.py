"""Page-locked host memory of `acl.rt.malloc_host`: ordinary memory of the process whose range is known."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl.memory import FRESH

_POISON = 0xDD
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    KIND: ClassVar[str] = "blocks of page-locked host memory"
    reported: ClassVar[bool] = True
    address: int
    size: int
    site: tuple[str, int]
    storage: npt.NDArray[np.uint8]


PINNED: dict[int, Pinned] = {}
_STARTS: list[int] = []
_LOCK = threading.RLock()  # the two belong together; again in one thread when a destructor frees in between


def allocate(size: int, site: tuple[str, int]) -> Pinned | None:
    """A block that starts on 64 bytes (pyacl.md §3.3); None when the host has no memory for it."""
    try:
        storage = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError:
        return None
    start: int = storage.__array_interface__["data"][0]
    skip = -start % _ALIGNMENT
    storage[skip : skip + size] = FRESH
    block = Pinned(address=start + skip, size=size, site=site, storage=storage)
    with _LOCK:
        PINNED[block.address] = block
        bisect.insort(_STARTS, block.address)
    return block


def release(block: Pinned) -> None:
    """Forget a block; views that a client kept on it see poison, as long as the system lets them."""
    block.storage[: 1 << 20] = _POISON
    with _LOCK:
        if PINNED.pop(block.address, None) is not None:  # unless another thread was quicker with a double free
            del _STARTS[bisect.bisect_left(_STARTS, block.address)]


def is_pinned(address: int) -> bool:
    if address in PINNED:
        return True
    with _LOCK:
        index = bisect.bisect_right(_STARTS, address) - 1
        if index < 0:
            return False
        block = PINNED[_STARTS[index]]
    return address < block.address + block.size
