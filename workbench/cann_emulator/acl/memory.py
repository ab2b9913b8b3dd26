"""Device memory: real addresses that host code cannot touch (pyacl.md §9, pointers, device/host, contents, limits).

The memory of a device is one sparse file without a name, mapped twice: at the addresses that are given out it allows
no access at all, so a host that reads one crashes as it would on a server; through a private second mapping the
emulator moves the bytes. A page of the file costs nothing until it is written.

Every block starts on a page of its own, with a page that belongs to nobody behind it, and takes the next address
range, so that a range is not used again for a long time: access to freed memory or beyond a block is found here.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

PAGE = 4096
CHUNK = 256 << 10
FRESH = 0x7F
"""What memory holds before anything was written to it, so that a missing copy shows in every type: 3.4e38 as float32
and bfloat16, NaN as float16, 1.4e306 as float64, ids beyond any table, 127 as int8."""
_RANGES = tuple(1 << bits for bits in range(38, 29, -1))
"""Addresses per device: four times the HBM, so that ranges are reused late; less where the process may not have that
much address space (ulimit -v)."""
_PROT_NONE, _PROT_RW, _MAP_SHARED, _MAP_NORESERVE = 0, 3, 0x01, 0x4000
_FALLOC_PUNCH_HOLE_KEEP_SIZE = 0x03

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


move = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(("memmove", _libc))
"""The C functions, in calls that keep the interpreter's lock, as the vendor's binding does."""
fill = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)(("memset", _libc))


@dataclass(slots=True, kw_only=True)
class Block:
    """One allocation.

    Attributes:
        size: as asked for.
        extent: bytes it really takes, `ceil32(size) + 32` (pyacl.md §3.3).
        what: 'malloc', or what the library allocated it for.
        unwritten: one flag per chunk that still lacks the pattern; None when every chunk has content.
    """

    KIND: ClassVar[str] = "blocks of device memory"
    address: int
    size: int
    extent: int
    what: str
    site: tuple[str, int]
    unwritten: bytearray | None

    @property
    def reported(self) -> bool:
        return self.what == "malloc"


@dataclass(slots=True, kw_only=True)
class Arena:
    """The memory of one device in this process."""

    device: int
    capacity: int
    file: int
    public: int
    length: int
    shift: int  # private address minus public address
    bytes: memoryview
    cursor: int
    used: int = 0
    starts: list[int] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def end(self) -> int:
        return self.public + self.length


ARENAS: list[Arena] = []


def open_arena(device: int, capacity: int) -> Arena:
    """Map the memory of a device; OSError where the process has no address space for it."""
    file = os.memfd_create(f"ascend-hbm-{device}", os.MFD_CLOEXEC)
    length, public, private = _map_twice(file)
    view = memoryview((ctypes.c_char * length).from_address(private)).cast("B")
    arena = Arena(
        device=device,
        capacity=capacity,
        file=file,
        public=public,
        length=length,
        shift=private - public,
        bytes=view,
        cursor=public + PAGE,
    )
    ARENAS.append(arena)
    return arena


def close_arenas() -> None:
    """In a forked child: the mappings are shared with the parent and must not be used or freed there."""
    ARENAS.clear()


def taken(size: int) -> int:
    """Bytes that an allocation of `size` takes."""
    return (size + 31) // 32 * 32 + 32


def allocate(arena: Arena, size: int, what: str, site: tuple[str, int], others: int = 0) -> Block | None:
    """A new block; None when the device has no room for it beside `others` bytes of other processes."""
    extent = taken(size)
    with arena.lock:
        if arena.used + others + extent > arena.capacity:
            return None
        span = (extent + PAGE - 1) // PAGE * PAGE + PAGE
        address = _place(arena, span)
        if address is None:
            return None
        chunks = (extent + CHUNK - 1) // CHUNK
        block = Block(
            address=address,
            size=size,
            extent=extent,
            what=what,
            site=site,
            unwritten=bytearray(b"\1") * chunks,
        )
        bisect.insort(arena.starts, address)
        arena.blocks[address] = block
        arena.cursor = address + span
        arena.used += extent
        return block


def release(arena: Arena, block: Block) -> None:
    """Free a block; its pages go back to the system, and with them what they held."""
    with arena.lock:
        if arena.blocks.pop(block.address, None) is None:
            return  # another thread was quicker with a double free
        del arena.starts[bisect.bisect_left(arena.starts, block.address)]
        arena.used -= block.extent
    length = (block.extent + PAGE - 1) // PAGE * PAGE
    _libc.fallocate(arena.file, _FALLOC_PUNCH_HOLE_KEEP_SIZE, block.address - arena.public, length)


def arena_of(address: int) -> Arena | None:
    """The device whose memory has this address; None for a host address."""
    for arena in ARENAS:
        if arena.public <= address < arena.public + arena.length:
            return arena
    return None


def block_at(arena: Arena, address: int) -> Block | None:
    """The live block that holds this address; None where there is none (freed, or never given out)."""
    block = arena.blocks.get(address)
    if block is not None:
        return block
    with arena.lock:
        index = bisect.bisect_right(arena.starts, address) - 1
        if index < 0:
            return None
        block = arena.blocks[arena.starts[index]]
    return block if address < block.address + block.extent else None


def reach(arena: Arena, address: int, count: int, writes: bool) -> int | None:
    """The private address of `count` bytes inside one live block, ready to be read or written; None outside of one.

    Bytes that nobody wrote yet hold the pattern.
    """
    block = arena.blocks.get(address)
    if block is None:
        block = block_at(arena, address)
        if block is None:
            return None
    offset = address - block.address
    if offset + count > block.extent:
        return None
    if block.unwritten is not None:
        _fill(arena, block, offset, count, writes)
    return address + arena.shift


def _fill(arena: Arena, block: Block, offset: int, count: int, writes: bool) -> None:
    unwritten = block.unwritten
    if unwritten is None:
        return
    base = block.address + arena.shift
    for chunk in range(offset // CHUNK, min((offset + count - 1) // CHUNK + 1, len(unwritten))):
        if not unwritten[chunk]:
            continue
        start, end = chunk * CHUNK, min(chunk * CHUNK + CHUNK, block.extent)
        if writes and offset <= start:
            start = max(start, min(offset + count, end))  # the write itself covers what is in front
        fill(base + start, FRESH, end - start)
        unwritten[chunk] = 0
    if not any(unwritten):
        block.unwritten = None


def _place(arena: Arena, span: int) -> int | None:
    """Where `span` free bytes begin: behind the last block, or from the start again once the range is used up.

    None where no gap is wide enough.
    """
    address = arena.cursor
    if address + span <= arena.end and _is_free(arena, address, span):
        return address
    address = arena.public + PAGE
    for start in arena.starts:
        if start - address >= span:
            return address
        block = arena.blocks[start]
        address = start + (block.extent + PAGE - 1) // PAGE * PAGE + PAGE
    return address if address + span <= arena.end else None


def _is_free(arena: Arena, address: int, span: int) -> bool:
    index = bisect.bisect_left(arena.starts, address)
    return index == len(arena.starts) or arena.starts[index] >= address + span


def _map_twice(file: int) -> tuple[int, int, int]:
    """(length, public address, private address) of the largest range that the process gets."""
    for length in _RANGES:
        public = _map(file, length, _PROT_NONE)
        private = _map(file, length, _PROT_RW) if public is not None else None
        if public is not None and private is not None:
            os.ftruncate(file, length)
            return length, public, private
        if public is not None:
            _libc.munmap(public, length)
    raise OSError(ctypes.get_errno(), "cannot map the emulated device memory: this process has too few addresses left")


def _map(file: int, length: int, protection: int) -> int | None:
    address = _libc.mmap(None, length, protection, _MAP_SHARED | _MAP_NORESERVE, file, 0)
    return None if address is None or address == ctypes.c_void_p(-1).value else int(address)


# --- page-locked host memory of `acl.rt.malloc_host`: memory of the process whose range is known ---

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
_PINNED_STARTS: list[int] = []
_PINNING = threading.RLock()  # the two belong together; again in one thread when a destructor frees in between


def pin(size: int, site: tuple[str, int]) -> Pinned | None:
    """A block that starts on 64 bytes (pyacl.md §3.3); None when the host has no memory for it."""
    try:
        storage = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError:
        return None
    start: int = storage.__array_interface__["data"][0]
    skip = -start % _ALIGNMENT
    storage[skip : skip + size] = FRESH
    block = Pinned(address=start + skip, size=size, site=site, storage=storage)
    with _PINNING:
        PINNED[block.address] = block
        bisect.insort(_PINNED_STARTS, block.address)
    return block


def unpin(block: Pinned) -> None:
    """Forget a block; views that a client kept on it see poison, as long as the system lets them."""
    block.storage[: 1 << 20] = _POISON
    with _PINNING:
        if PINNED.pop(block.address, None) is not None:  # unless another thread was quicker with a double free
            del _PINNED_STARTS[bisect.bisect_left(_PINNED_STARTS, block.address)]


def is_pinned(address: int) -> bool:
    if address in PINNED:
        return True
    with _PINNING:
        index = bisect.bisect_right(_PINNED_STARTS, address) - 1
        if index < 0:
            return False
        block = PINNED[_PINNED_STARTS[index]]
    return address < block.address + block.size
