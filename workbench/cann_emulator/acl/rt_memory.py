"""Memory and copies of `acl.rt` (pyacl.md §1.4, §2.1, §2.5 "Memory")."""

from __future__ import annotations

from workbench.cann_emulator.acl import (
    clock,
    codes,
    contexts,
    host_clock,
    leaks,
    memory,
    pinned,
    reason,
    streams,
    strict,
    use,
)
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context

_KINDS = range(6)
_ATTRIBUTES = range(12)
_HBM = (1, 4, 5, 8, 9, 10, 11)
_COPY_ALIGNMENT = 64
_move = memory.move
_arena_of, _reach = memory.arena_of, memory.reach


@call("ki", "kr")
def malloc(size: int, policy: int) -> tuple[int, int]:
    """Device memory; a policy that does not exist means the default one (pyacl.md §2.1)."""
    return _malloc(size)


@call("ki", "kr")
def malloc_cached(size: int, policy: int) -> tuple[int, int]:
    return _malloc(size)


@call("k", "r")
def free(ptr: int) -> int:
    """Free a block of `malloc`, by the pointer that `malloc` gave; does not wait for queued work.

    The only calls on memory that need no current context are the two that free it (`ApiImpl::DevFreeStatic` and
    `HostFree` of the open runtime repository): programs do it in destructors, behind `destroy_context`.
    """
    if not ptr:
        reason.report("EH0002", param="devPtr")
        return codes.INVALID_PARAM
    arena = memory.arena_of(ptr)
    block = arena.blocks.get(ptr) if arena is not None else None
    if arena is None or block is None:
        return strict.undefined(_why_not_free(ptr), codes.RT_MEMORY_FREE)
    if block.what != "malloc":
        return strict.undefined(f"free of memory that belongs to {block.what}", codes.RT_MEMORY_FREE)
    if strict.STRICT["on"]:
        _refuse_pending(ptr, block.extent, "free")
    memory.release(arena, block)
    use.update(next(d for d in contexts.devices() if d.arena is arena))
    return 0


@call("k", "kr")
def malloc_host(size: int) -> tuple[int, int]:
    if not size:
        return 0, codes.INVALID_PARAM
    if contexts.current() is None:
        return 0, codes.RT_CONTEXT_NULL
    block = pinned.allocate(size, site())
    return (block.address, 0) if block is not None else (0, codes.RT_MEMORY_ALLOCATION)


@call("k", "r")
def free_host(ptr: int) -> int:
    if not ptr:
        reason.report("EH0002", param="hostPtr")
        return codes.INVALID_PARAM
    block = pinned.PINNED.get(ptr)
    if block is None:
        return strict.undefined(f"free_host of {ptr:#x}, which malloc_host did not give", codes.RT_MEMORY_FREE)
    if strict.STRICT["on"]:
        _refuse_pending(ptr, block.size, "free_host")
    pinned.release(block)
    return 0


@call("kkkki", "r")
def memcpy(dst: int, dst_max: int, src: int, count: int, kind: int) -> int:
    """Copy now, waiting for no stream; the direction follows the addresses, `kind` is only checked for its range."""
    if not (dst and src):
        reason.report("EH0002", param="dst" if not dst else "src")
        return codes.INVALID_PARAM
    if kind not in _KINDS:
        reason.report("EH0001", value=kind, param="kind", reason="it must be in [0, 5]")
        return codes.INVALID_PARAM
    context = contexts.current()
    if context is None:
        return codes.RT_CONTEXT_NULL
    if not 0 < count <= dst_max:
        return _wrong_count("aclrtMemcpy", count, dst_max)
    if dst == src:
        return 0
    if strict.STRICT["on"]:
        _refuse_pending(src, count, "memcpy")
        _refuse_pending(dst, count, "memcpy")
    to, source = _arena_of(dst), _arena_of(src)
    with host_clock.STANDING:
        code = _copy(dst, src, count, to, source)
    if code == 0 and (to is not None or source is not None):
        clock.count_copy(context, count, to is not None, source is not None)
    return code


@call("kkkkik", "r")
def memcpy_async(dst: int, dst_max: int, src: int, count: int, kind: int, stream: int) -> int:
    """Queue a copy; with ordinary host memory the stream is synchronised and the copy done at once (pyacl.md §1.4)."""
    if not (dst and src):
        reason.report("EH0002", param="dst" if not dst else "src")
        return codes.INVALID_PARAM
    if kind not in _KINDS:
        reason.report("EH0001", value=kind, param="kind", reason="it must be in [0, 5]")
        return codes.INVALID_PARAM
    context = contexts.current()
    if context is None:
        return codes.RT_CONTEXT_NULL
    if not 0 < count <= dst_max:
        return _wrong_count("aclrtMemcpyAsync", count, dst_max)
    queue, code = streams.resolve(stream, context)
    if queue is None:
        return code
    to, source = _arena_of(dst), _arena_of(src)
    if to is None and source is None:
        return codes.RT_FEATURE_NOT_SUPPORT
    for address, arena in ((dst, to), (src, source)):
        if address % _COPY_ALIGNMENT and arena is not None:
            code = strict.undefined(f"memcpy_async with {address:#x}, which is not 64-byte aligned", 0)
    direct = all(arena is not None or pinned.is_pinned(address) for address, arena in ((dst, to), (src, source)))
    duration = clock.copy_ns(count, to is not None, source is not None)
    if not direct:
        with host_clock.STANDING:
            code = streams.synchronize(queue) or _copy(dst, src, count, to, source)
        streams.advance(queue, duration)
        return code
    task = streams.Task(
        work=lambda: _copy_later(dst, src, count),
        duration_ns=duration,
        spans=((dst, count), (src, count)),
        what="memcpy_async",
        kind=streams.COPY,
    )
    streams.queue(queue, task)
    return 0


@call("kkik", "r")
def memset(ptr: int, max_count: int, value: int, count: int) -> int:
    if not ptr:
        reason.report("EH0002", param="devPtr")
        return codes.INVALID_PARAM
    if contexts.current() is None:
        return codes.RT_CONTEXT_NULL
    if not count:
        return _wrong_count("aclrtMemset", count, max_count)
    if count > max_count:
        return strict.undefined(f"memset of {count} bytes with a maximum of {max_count}", codes.RT_PARAM_INVALID)
    if strict.STRICT["on"]:
        _refuse_pending(ptr, count, "memset")
    return _set(ptr, value, count)


@call("kkikk", "r")
def memset_async(ptr: int, max_count: int, value: int, count: int, stream: int) -> int:
    if not ptr:
        reason.report("EH0002", param="devPtr")
        return codes.INVALID_PARAM
    context = contexts.current()
    if context is None:
        return codes.RT_CONTEXT_NULL
    if not 0 < count <= max_count:
        return _wrong_count("aclrtMemsetAsync", count, max_count)
    queue, code = streams.resolve(stream, context)
    if queue is None:
        return code
    duration = clock.copy_ns(count, True, True)
    work = streams.Task(
        work=lambda: _set(ptr, value, count),
        duration_ns=duration,
        spans=((ptr, count),),
        what="memset_async",
        kind="MEMSET_ASYNC",
    )
    streams.queue(queue, work)
    return 0


@call("i", "kkr")
def get_mem_info(attr: int) -> tuple[int, int, int]:
    """Free and total bytes of the current device; (0, 0) for memory the chip lacks, as DDR on a 910B3."""
    if attr not in _ATTRIBUTES:
        reason.report("EE1003", value=attr, param="attr", function="aclrtGetMemInfo", expected="[0, 11]")
        return 0, 0, codes.RT_INVALID_MEMORY_TYPE
    context = contexts.current()
    if context is None:
        return 0, 0, codes.RT_CONTEXT_NULL
    if attr not in _HBM:
        return 0, 0, 0
    arena = contexts.arena(context.device)
    left = arena.capacity - arena.used - use.others_bytes(context.device, now_exactly=True)
    return max(0, left), arena.capacity, 0


@call("kk", "r")
def mem_flush(ptr: int, size: int) -> int:
    """Nothing to do on a chip whose caches are coherent."""
    return 0 if ptr and size else codes.INVALID_PARAM


@call("kk", "r")
def mem_invalidate(ptr: int, size: int) -> int:
    return 0 if ptr and size else codes.INVALID_PARAM


def grab(context: Context, size: int, what: str, where: tuple[str, int]) -> memory.Block | None:
    """Device memory for the library itself, or for `malloc`; None when there is none left."""
    device = context.device
    arena = contexts.arena(device)
    others = use.others_bytes(device) if size >= 1 << 20 else 0
    block = memory.allocate(arena, size, what, where, others)
    use.update(device)
    return block


def _malloc(size: int) -> tuple[int, int]:
    if not size:
        reason.report("EH0001", value=0, param="size", reason="it must be greater than zero")
        return 0, codes.INVALID_PARAM
    context = contexts.current()
    if context is None:
        return 0, codes.RT_CONTEXT_NULL
    block = grab(context, size, "malloc", site())
    if block is None:
        reason.report("EL0004", reason=f"{size} bytes of device memory were asked for by module APP.")
        return 0, codes.RT_MEMORY_ALLOCATION
    return block.address, 0


def _copy(dst: int, src: int, count: int, to: memory.Arena | None, source: memory.Arena | None) -> int:
    if to is not None:
        address = _reach(to, dst, count, True)
        if address is None:
            return _outside("written", dst, count)
        dst = address
    if source is not None:
        address = _reach(source, src, count, False)
        if address is None:
            return _outside("read", src, count)
        src = address
    _move(dst, src, count)
    return 0


def _copy_later(dst: int, src: int, count: int) -> int:
    return _copy(dst, src, count, _arena_of(dst), _arena_of(src))


def _set(ptr: int, value: int, count: int) -> int:
    arena = _arena_of(ptr)
    if arena is not None:
        address = _reach(arena, ptr, count, True)
        if address is None:
            return _outside("written", ptr, count)
        ptr = address
    memory.fill(ptr, value & 0xFF, count)
    return 0


def _outside(done: str, address: int, count: int) -> int:
    fact = f"{count} bytes are {done} at device address {address:#x}, which is not all inside one live block"
    return strict.undefined(fact, codes.RT_DRV_INTERNAL_ERROR)


def _wrong_count(function: str, count: int, most: int) -> int:
    reason.report("EE1003", value=count, param="count", function=function, expected=f"(0, {most}]")
    return codes.RT_PARAM_INVALID


def _why_not_free(ptr: int) -> str:
    if ptr in pinned.PINNED:
        return f"free of {ptr:#x}, which is page-locked host memory: free_host frees it"
    arena = memory.arena_of(ptr)
    if arena is None:
        return f"free of {ptr:#x}, which is no device address"
    inside = memory.block_at(arena, ptr)
    return f"free of {ptr:#x}, which is " + ("inside of a block" if inside else "freed already, or never was given out")


def _refuse_pending(address: int, count: int, what: str) -> None:
    task = streams.touched(address, count)
    if task is not None:
        strict.undefined(f"{what} at {address:#x} while a queued {task.what} uses it: synchronize the stream first", 0)


def _left() -> list[leaks.Alive]:
    blocks = pinned.PINNED
    return [("blocks of page-locked host memory", b.site, blocks, b.address) for b in blocks.values()]


leaks.COLLECTORS.append(_left)
