"""Devices and contexts of `acl.rt` (pyacl.md §1.2, §2.5 "Device and context")."""

from __future__ import annotations

from workbench.cann_emulator.acl import contexts, errors, handles, memory, streams
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context, Device
from workbench.cann_emulator.acl.errors import Failed

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
    device = contexts.device_of(device_id)
    with contexts.SETTING:
        device.sets += 1
        device.default = device.default or contexts.new(device, site(), own=True)
    contexts.make_current(device.default)


@call("i", "r")
def reset_device(device_id: int) -> int:
    """One `set_device` less; the last one releases everything of this process on the device."""
    device = contexts.device_of(device_id)
    if device.sets == 0:
        raise Failed(errors.RT_CONTEXT_RELEASE_ERROR)
    code = streams.synchronize_device(device)
    with contexts.SETTING:
        device.sets -= 1
        if device.sets == 0:
            _release(device)
    return code


@call("", "ir", device=False)
def get_device() -> int:
    return contexts.required().device.index


@call("", "r")
def synchronize_device() -> int:
    return streams.synchronize_device(contexts.required().device)


@call("i", "kr")
def create_context(device_id: int) -> int:
    """Current in this thread from now on."""
    context = contexts.new(contexts.device_of(device_id), site(), own=False)
    contexts.make_current(context)
    return context.handle


@call("k", "r")
def destroy_context(context: int) -> None:
    """Only explicit ones; the default context, and one that is gone already, give 107002."""
    errors.present(context=context)
    found = handles.look(context, Context)
    if found is None or found.own:
        raise Failed(errors.RT_CONTEXT_NULL)
    contexts.destroy(found)


@call("k", "r")
def set_context(context: int) -> None:
    errors.present(context=context)
    found = handles.look(context, Context)
    if found is None:
        raise errors.undefined(f"set_context of {context:#x}, which is no live context", errors.RT_CONTEXT_NULL)
    contexts.make_current(found)


@call("", "kr", device=False)
def get_context() -> int:
    context = contexts.current()
    return context.handle if context is not None else 0


def _release(device: Device) -> None:
    """End contexts with their streams, events and models, and free the memory that is left."""
    for context in list(device.contexts.values()):
        handles.reclaim(context)
        contexts.destroy(context)
    device.default = None
    arena = device.arena
    if arena is not None:
        for block in list(arena.blocks.values()):
            handles.reclaimed.append((block.KIND, block.site))
            memory.release(arena, block)
    contexts.update_use()
