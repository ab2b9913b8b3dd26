"""Memory and copies of `acl.rt` (pyacl.md §1.4, §2.1, §2.5 "Memory")."""

from __future__ import annotations

from workbench.cann_emulator.acl import clock, errors, memory, rt_device, streams
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.rt_device import Context

_KINDS = range(6)
_ATTRIBUTES = range(12)
_HBM = (1, 4, 5, 8, 9, 10, 11)
_COPY_ALIGNMENT = 64


@call("rt", "ki", "kr")
def malloc(size: int, policy: int) -> int:
    """Device memory; a policy that does not exist means the default one (pyacl.md §2.1)."""
    if not size:
        raise errors.invalid("size", 0, "it must be greater than zero")
    block = grab(rt_device.required(), size, "malloc")
    if block is None:
        raise Failed(errors.RT_MEMORY_ALLOCATION)
    return block.address


@call("rt", "k", "r")
def free(ptr: int) -> None:
    """Free a block of `malloc`, by the pointer that `malloc` gave; does not wait for queued work.

    The only calls on memory that need no current context are the two that free it (`ApiImpl::DevFreeStatic` and
    `HostFree` of the open runtime repository): programs do it in destructors, behind `destroy_context`.
    """
    errors.present(devPtr=ptr)
    arena = memory.arena_of(ptr)
    block = arena.blocks.get(ptr) if arena is not None else None
    if arena is None or block is None or block.own:
        why = "malloc did not give it, or it is freed already" if block is None else f"it belongs to {block.what}"
        why = "free_host frees it" if ptr in memory.PINNED else why
        raise errors.undefined(f"free of {ptr:#x}: {why}", errors.RT_MEMORY_FREE)
    memory.release(arena, block)
    rt_device.update_use()


@call("rt", "k", "kr")
def malloc_host(size: int) -> int:
    if not size:
        raise Failed(errors.INVALID_PARAM)
    rt_device.required()
    address = memory.pin(size)
    if not address:
        raise Failed(errors.RT_MEMORY_ALLOCATION)
    return address


@call("rt", "k", "r")
def free_host(ptr: int) -> None:
    errors.present(hostPtr=ptr)
    if not memory.unpin(ptr):
        raise errors.undefined(f"free_host of {ptr:#x}, which malloc_host did not give", errors.RT_MEMORY_FREE)


@call("rt", "kkkki", "r")
def memcpy(dst: int, dst_max: int, src: int, count: int, kind: int) -> None:
    """Copy now, waiting for no stream; the direction follows the addresses, `kind` is only checked for its range."""
    context, sides = _check_copy("aclrtMemcpy", dst, dst_max, src, count, kind)
    if dst == src:
        return
    _copy(dst, src, count)
    if any(sides):  # waited for: work of the device and the host's time, on no stream of the caller
        spent = clock.copy_ns(count, *sides)
        context.device.busy_us += spent / 1000
        clock.spend(spent)


@call("rt", "kkkkik", "r")
def memcpy_async(dst: int, dst_max: int, src: int, count: int, kind: int, stream: int) -> int:
    """Queue a copy; with ordinary host memory the stream is synchronised, and the copy done at once (pyacl.md §1.4)."""
    _, sides = _check_copy("aclrtMemcpyAsync", dst, dst_max, src, count, kind)
    queue = streams.resolve(stream)
    if not any(sides):
        raise Failed(errors.RT_FEATURE_NOT_SUPPORT)
    ends = list(zip((dst, src), sides, strict=True))
    for address, on_device in ends:
        if address % _COPY_ALIGNMENT and on_device:
            errors.undefined(f"memcpy_async with {address:#x}, which is not 64-byte aligned")
    duration = clock.copy_ns(count, *sides)
    streams.queue(queue, streams.Task(work=lambda: _copy(dst, src, count), duration_ns=duration, kind=streams.COPY))
    asynchronous = all(on_device or memory.is_pinned(address) for address, on_device in ends)
    return 0 if asynchronous else streams.synchronize(queue)


@call("rt", "kkik", "r")
def memset(ptr: int, max_count: int, value: int, count: int) -> None:
    errors.present(devPtr=ptr)
    rt_device.required()
    if not count:
        raise _wrong_count("aclrtMemset", count, max_count)
    if count > max_count:
        fact = f"memset of {count} bytes with a maximum of {max_count}"
        raise errors.undefined(fact, errors.RT_PARAM_INVALID)
    _set(ptr, value, count)


@call("rt", "kkikk", "r")
def memset_async(ptr: int, max_count: int, value: int, count: int, stream: int) -> None:
    errors.present(devPtr=ptr)
    rt_device.required()
    if not 0 < count <= max_count:
        raise _wrong_count("aclrtMemsetAsync", count, max_count)
    duration = clock.copy_ns(count, True, True)
    work = streams.Task(work=lambda: _set(ptr, value, count), duration_ns=duration, kind="MEMSET_ASYNC")
    streams.queue(streams.resolve(stream), work)


@call("rt", "i", "kkr")
def get_mem_info(attr: int) -> tuple[int, int]:
    """Free and total bytes of the current device; (0, 0) for memory the chip lacks, as DDR on a 910B3."""
    if attr not in _ATTRIBUTES:
        what = {"value": attr, "param": "attr", "function": "aclrtGetMemInfo", "expected": "[0, 11]"}
        raise errors.refused(errors.RT_INVALID_MEMORY_TYPE, "EE1003", **what)
    context = rt_device.required()
    if attr not in _HBM:
        return 0, 0
    arena = context.device.arena
    assert arena is not None, "it came with the context"
    return arena.capacity - arena.used, arena.capacity


def grab(context: Context, size: int, what: str) -> memory.Block | None:
    """Device memory for the library itself, or for `malloc`; None, and a reason text, when there is none left."""
    assert context.device.arena is not None, "it came with the context"
    block = memory.allocate(context.device.arena, size, what)
    rt_device.update_use()
    if block is None:
        module = "APP" if what == "malloc" else "GE"
        errors.report("EL0004", reason=f"{size} bytes of device memory were asked for by module {module}.")
    return block


def _check_copy(
    function: str, dst: int, dst_max: int, src: int, count: int, kind: int
) -> tuple[Context, tuple[bool, bool]]:
    """The current context, and whether target and source are on a device."""
    errors.present(dst=dst, src=src)
    if kind not in _KINDS:
        raise errors.invalid("kind", kind, "it must be in [0, 5]")
    context = rt_device.required()
    if not 0 < count <= dst_max:
        raise _wrong_count(function, count, dst_max)
    return context, (memory.arena_of(dst) is not None, memory.arena_of(src) is not None)


def _copy(dst: int, src: int, count: int) -> None:
    memory.move(_private(dst, count, writes=True), _private(src, count, writes=False), count)


def _set(ptr: int, value: int, count: int) -> None:
    memory.fill(_private(ptr, count, writes=True), value & 0xFF, count)


def _private(address: int, count: int, *, writes: bool) -> int:
    """Where the bytes of an address can be reached; a host address is left as it is."""
    if memory.arena_of(address) is None:
        return address
    found = memory.reach(address, count, writes)
    if found is None:
        done = "written" if writes else "read"
        fact = f"{count} bytes are {done} at device address {address:#x}, which is not all inside one live block"
        raise errors.undefined(fact, errors.RT_DRV_INTERNAL_ERROR)
    return found


def _wrong_count(function: str, count: int, most: int) -> Failed:
    what = {"value": count, "param": "count", "function": function, "expected": f"(0, {most}]"}
    return errors.refused(errors.RT_PARAM_INVALID, "EE1003", **what)
