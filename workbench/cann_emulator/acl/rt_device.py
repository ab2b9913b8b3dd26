"""Devices and contexts of `acl.rt` (pyacl.md §1.2, §2.5 "Device and context")."""

from __future__ import annotations

from workbench.cann_emulator.acl import (
    codes,
    contexts,
    handles,
    leaks,
    memory,
    reason,
    streams,
    strict,
    use,
)
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context, Device

HOST = 1
"""Run mode of a server: code runs on the host."""


@call("", "ir", device=False)
def get_run_mode() -> tuple[int, int]:
    return HOST, 0


@call("", "Ir", device=False)
def get_device_count() -> tuple[int, int]:
    return len(contexts.devices()), 0


@call("i", "r")
def set_device(device_id: int) -> int:
    device = contexts.device_of(device_id, "deviceId")
    if device is None:
        return codes.RT_INVALID_DEVICEID
    contexts.set_device(device, site())
    return 0


@call("i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one releases everything of this process on the device."""
    device = contexts.device_of(device_id, "deviceId")
    if device is None:
        return codes.RT_INVALID_DEVICEID
    if device.sets == 0:
        return codes.RT_CONTEXT_RELEASE_ERROR
    code = streams.synchronize_device(device)
    with contexts.SETTING:
        device.sets -= 1
        if device.sets == 0:
            _release(device)
    return code


@call("i", "r")
def reset_device_force(device_id: int) -> int:
    """Release everything of this process on the device, however often it was set."""
    device = contexts.device_of(device_id, "deviceId")
    if device is None:
        return codes.RT_INVALID_DEVICEID
    device.sets = 0
    _release(device)
    return 0


@call("", "ir", device=False)
def get_device() -> tuple[int, int]:
    context = contexts.current()
    return (context.device.index, 0) if context is not None else (0, codes.RT_CONTEXT_NULL)


@call("", "r")
def synchronize_device() -> int:
    context = contexts.current()
    return codes.RT_CONTEXT_NULL if context is None else streams.synchronize_device(context.device)


@call("i", "dr")
def get_device_utilization_rate(device_id: int) -> tuple[dict[str, int], int]:
    """Percent; what cannot be told is -1, memory always. The code is 0 in any case."""
    known = contexts.devices()
    cube = round(use.load_percent(known[device_id])) if 0 <= device_id < len(known) else -1
    aicpu = 0 if cube >= 0 else -1
    rates = {"cube_utilization": cube, "vector_utilization": cube, "aicpu_utilization": aicpu}
    return {**rates, "memory_utilization": -1, "utilization_extend": 0}, 0


@call("i", "kr")
def create_context(device_id: int) -> tuple[int, int]:
    device = contexts.device_of(device_id, "deviceId")
    if device is None:
        return 0, codes.RT_INVALID_DEVICEID
    return contexts.create(device, site()).handle, 0


@call("k", "r")
def destroy_context(context: int) -> int:
    """Only explicit ones; the default context, and one that is gone already, give 107002."""
    if not context:
        reason.report("EH0002", param="context")
        return codes.INVALID_PARAM
    found = handles.look(context, Context)
    if found is None or not found.explicit:
        return codes.RT_CONTEXT_NULL
    contexts.destroy(found)
    return 0


@call("k", "r")
def set_context(context: int) -> int:
    if not context:
        reason.report("EH0002", param="context")
        return codes.INVALID_PARAM
    found = handles.look(context, Context)
    if found is None:
        return strict.undefined(f"set_context of {context:#x}, which is no live context", codes.RT_CONTEXT_NULL)
    contexts.make_current(found)
    return 0


@call("", "kr", device=False)
def get_context() -> tuple[int, int]:
    context = contexts.current()
    return (context.handle, 0) if context is not None else (0, 0)


@call("", "kr")
def ctx_get_current_default_stream() -> tuple[int, int]:
    context = contexts.current()
    return (streams.default_stream(context).handle, 0) if context is not None else (0, codes.RT_CONTEXT_NULL)


def _release(device: Device) -> None:
    """End contexts with their streams, events and models, and free the memory that is left."""
    for context in list(device.contexts):
        if context.explicit:
            leaks.reclaimed.append(("contexts", context.site))
        contexts.destroy(context)
    device.default = None
    arena = device.arena
    if arena is not None:
        for block in list(arena.blocks.values()):
            leaks.reclaimed.append(("blocks of device memory", block.site))
            memory.release(arena, block)
    use.update(device)


def _left() -> list[leaks.Alive]:
    explicit = [c for c in handles.alive(Context) if c.explicit]
    found: list[leaks.Alive] = [("contexts", c.site, handles.LIVE, c.handle) for c in explicit]
    for arena in memory.ARENAS:
        blocks = [b for b in arena.blocks.values() if b.what == "malloc"]
        found += [("blocks of device memory", b.site, arena.blocks, b.address) for b in blocks]
    return found


leaks.COLLECTORS.append(_left)
