"""Devices and contexts of `acl.rt` (pyacl.md §1.2, §2.5 "Device and context")."""

from __future__ import annotations

from workbench.cann_emulator.acl import codes, contexts, handles, leaks, memory, reason, streams, strict, use
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.contexts import Context, Device

HOST = 1
"""Run mode of a server: code runs on the host."""


@call("", "ir", device=False)
def get_run_mode() -> int:
    return HOST


@call("", "Ir", device=False)
def get_device_count() -> int:
    return len(contexts.devices())


@call("i", "r")
def set_device(device_id: int) -> None:
    contexts.set_device(contexts.device_of(device_id), site())


@call("i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one releases everything of this process on the device."""
    device = contexts.device_of(device_id)
    if device.sets == 0:
        raise Failed(codes.RT_CONTEXT_RELEASE_ERROR)
    code = streams.synchronize_device(device)
    with contexts.SETTING:
        device.sets -= 1
        if device.sets == 0:
            _release(device)
    return code


@call("i", "r")
def reset_device_force(device_id: int) -> None:
    """Release everything of this process on the device, however often it was set."""
    device = contexts.device_of(device_id)
    device.sets = 0
    _release(device)


@call("", "ir", device=False)
def get_device() -> int:
    return contexts.required().device.index


@call("", "r")
def synchronize_device() -> int:
    return streams.synchronize_device(contexts.required().device)


@call("i", "dr")
def get_device_utilization_rate(device_id: int) -> dict[str, int]:
    """Percent; what cannot be told is -1, memory always. The code is 0 in any case."""
    known = contexts.devices()
    cube = round(use.load_percent(known[device_id])) if 0 <= device_id < len(known) else -1
    aicpu = 0 if cube >= 0 else -1
    rates = {"cube_utilization": cube, "vector_utilization": cube, "aicpu_utilization": aicpu}
    return {**rates, "memory_utilization": -1, "utilization_extend": 0}


@call("i", "kr")
def create_context(device_id: int) -> int:
    return contexts.create(contexts.device_of(device_id), site()).handle


@call("k", "r")
def destroy_context(context: int) -> None:
    """Only explicit ones; the default context, and one that is gone already, give 107002."""
    reason.present(context=context)
    found = handles.look(context, Context)
    if found is None or not found.explicit:
        raise Failed(codes.RT_CONTEXT_NULL)
    contexts.destroy(found)


@call("k", "r")
def set_context(context: int) -> None:
    reason.present(context=context)
    found = handles.look(context, Context)
    if found is None:
        raise strict.undefined(f"set_context of {context:#x}, which is no live context", codes.RT_CONTEXT_NULL)
    contexts.make_current(found)


@call("", "kr", device=False)
def get_context() -> int:
    context = contexts.current()
    return context.handle if context is not None else 0


@call("", "kr")
def ctx_get_current_default_stream() -> int:
    return streams.default_stream(contexts.required()).handle


def _release(device: Device) -> None:
    """End contexts with their streams, events and models, and free the memory that is left."""
    for context in list(device.contexts.values()):
        leaks.reclaim(context)
        contexts.destroy(context)
    device.default = None
    arena = device.arena
    if arena is not None:
        for block in list(arena.blocks.values()):
            leaks.reclaimed.append((block.KIND, block.site))
            memory.release(arena, block)
    use.update(device)
