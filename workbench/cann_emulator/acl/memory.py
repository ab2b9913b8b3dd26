"""Device memory: addresses that host code cannot touch (pyacl.md §9, pointers, device/host, contents, limits).

A device has a range of addresses without any access, so a host that reads one crashes as it would on a server; what a
block holds lies elsewhere, and costs nothing until it is touched.

Every block starts on a page of its own, with a page that belongs to nobody behind it, and takes the next address
range, so that a range is not used again for a long time: access to freed memory or beyond a block is found here.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

PAGE = 4096
FRESH = 0x7F
"""What memory holds before anything was written to it, so that a missing copy shows in every type: 3.4e38 as float32
and bfloat16, NaN as float16, 1.4e306 as float64, ids beyond any table, 127 as int8."""
_RANGES = tuple(1 << bits for bits in range(38, 29, -1))
"""Addresses per device: four times the HBM, so that ranges are reused late; less where the process may not have that
much address space (ulimit -v)."""
_PROT_NONE, _MAP_NORESERVE = 0, 0x4000
_POISON, _ALIGNMENT = 0xDD, 64

move = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
    ("memmove", ctypes.CDLL(None))
)
"""The C functions, in calls that keep the interpreter's lock, as the vendor's binding does."""
fill = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)(("memset", ctypes.CDLL(None)))


@dataclass(slots=True, kw_only=True)
class Block:
    """One allocation."""

    KIND: ClassVar[str] = "blocks of device memory"
    address: int
    extent: int  # bytes it really takes, `ceil32(size) + 32` (pyacl.md §3.3)
    what: str  # 'malloc', or what the library allocated it for
    content: npt.NDArray[np.uint8]  # `extent` bytes
    private: int  # where the content begins
    fresh: bool = True  # nobody touched it, and the pattern is not there yet

    @property
    def own(self) -> bool:
        return self.what != "malloc"

    @property
    def next(self) -> int:
        """Where the next block may begin, a page of nobody's between."""
        return self.address + (self.extent + PAGE - 1) // PAGE * PAGE + PAGE


@dataclass(slots=True, kw_only=True)
class Arena:
    """The memory of one device in this process."""

    capacity: int
    addresses: mmap.mmap
    public: int
    length: int
    cursor: int
    used: int = 0
    starts: list[int] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


ARENAS: list[Arena] = []


def open_arena(capacity: int) -> Arena:
    """The memory of a device; OSError where the process has no address space for it."""
    for length in _RANGES:
        try:
            addresses = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE, prot=_PROT_NONE)
        except OSError:
            continue
        public = _start(np.frombuffer(addresses, np.uint8))
        arena = Arena(capacity=capacity, addresses=addresses, public=public, length=length, cursor=public + PAGE)
        ARENAS.append(arena)
        return arena
    raise OSError("cannot map the emulated device memory: this process has too few addresses left")


def allocate(arena: Arena, size: int, what: str) -> Block | None:
    """A new block; None when the device has no room for it."""
    extent = (size + 31) // 32 * 32 + 32
    with arena.lock:
        if arena.used + extent > arena.capacity:
            return None
        try:
            content = np.frombuffer(mmap.mmap(-1, extent, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE), np.uint8)
        except OSError:
            return None
        block = Block(address=0, extent=extent, what=what, content=content, private=_start(content))
        if not _place(arena, block):
            return None
        bisect.insort(arena.starts, block.address)
        arena.blocks[block.address] = block
        arena.cursor = block.next
        arena.used += extent
        return block


def _place(arena: Arena, block: Block) -> bool:
    """Give a block its address: behind the last one, or in the first gap once the range is used up."""
    end = arena.public + arena.length
    behind = arena.starts[bisect.bisect_left(arena.starts, arena.cursor) :]
    block.address = arena.cursor
    if block.next <= (behind[0] if behind else end):
        return True
    block.address = arena.public + PAGE
    for start in arena.starts:
        if block.next <= start:
            return True
        block.address = arena.blocks[start].next
    return block.next <= end


def release(arena: Arena, block: Block) -> None:
    with arena.lock:
        if arena.blocks.pop(block.address, None) is None:
            return  # another thread was quicker with a double free
        del arena.starts[bisect.bisect_left(arena.starts, block.address)]
        arena.used -= block.extent


def arena_of(address: int) -> Arena | None:
    """The device whose memory has this address; None for a host address."""
    return next((arena for arena in ARENAS if arena.public <= address < arena.public + arena.length), None)


def block_at(address: int) -> Block | None:
    """The live block that holds this address; None where there is none (freed, never given out, or of the host)."""
    arena = arena_of(address)
    if arena is None or (block := arena.blocks.get(address)) is not None:
        return None if arena is None else block
    with arena.lock:
        index = bisect.bisect_right(arena.starts, address) - 1
        block = arena.blocks[arena.starts[index]] if index >= 0 else None
    return block if block is not None and address < block.address + block.extent else None


def reach(address: int, count: int, writes: bool) -> int | None:
    """The private address of `count` bytes inside one live block, ready to be read or written; None outside of one."""
    block = block_at(address)
    if block is None or address - block.address + count > block.extent:
        return None
    offset = address - block.address
    if block.fresh:
        kept = (offset, offset + count) if writes else (0, 0)  # what the write itself covers
        block.content[: kept[0]] = block.content[kept[1] :] = FRESH
        block.fresh = False
    return block.private + offset


def _start(storage: npt.NDArray[np.uint8]) -> int:
    address: int = storage.__array_interface__["data"][0]
    return address


# --- page-locked host memory of `acl.rt.malloc_host`: memory of the process whose range is known ---

PINNED: dict[int, npt.NDArray[np.uint8]] = {}
"""By address."""


def pin(size: int) -> int:
    """The address of a block that starts on 64 bytes (pyacl.md §3.3); 0 when the host has no memory for it."""
    try:
        storage = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError:
        return 0
    skip = -_start(storage) % _ALIGNMENT
    block = storage[skip : skip + size]
    block[:] = FRESH
    PINNED[_start(block)] = block
    return _start(block)


def unpin(address: int) -> bool:
    """Forget a block, whose views that a client kept see poison as long as the system lets them; False for none."""
    block = PINNED.pop(address, None)  # another thread may have been quicker with a double free
    if block is not None:
        block[: 1 << 20] = _POISON
    return block is not None


def is_pinned(address: int) -> bool:
    return address in PINNED or any(start <= address < start + len(b) for start, b in list(PINNED.items()))
