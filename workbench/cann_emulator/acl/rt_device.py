"""Devices and contexts of `acl.rt`, and which context is current in which thread (pyacl.md §1.2, §2.5, §3.4).

A device has a default context that all threads share which set the device; it is counted. A device's memory is
mapped when the first context of it is made.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from workbench.cann_emulator.acl import errors, handles, memory
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.state import RESERVED_HBM_MB, DeviceUse, device_count, hbm_mb, report_use, soc_version

SOC_NAME = soc_version()
_HOST = 1
"""Run mode of a server: code runs on the host."""


@dataclass(slots=True, kw_only=True, eq=False)
class Device:
    """A card as this process sees it."""

    index: int  # as the process numbers it, after ASCEND_RT_VISIBLE_DEVICES
    physical: int  # as the machine numbers it
    sets: int = 0  # `set_device` calls minus `reset_device` calls
    default: Context | None = None
    contexts: dict[int, Context] = field(default_factory=dict)  # by handle
    streams: int = 0  # of all of them
    arena: memory.Arena | None = None
    busy_us: float = 0.0  # virtual time that it computed


@dataclass(slots=True, kw_only=True, eq=False)
class Context(Made):
    """Attributes: owned: its streams and events, by handle; they end with it."""

    KIND: ClassVar[str] = "contexts"
    device: Device
    owned: dict[int, Made] = field(default_factory=dict)
    stream: object = None  # its default stream, made by `streams` when it is first used
    alive: bool = True


THREAD = threading.local()
"""Its `context` is the current one, which may have ended."""
SETTING = threading.RLock()
"""Held while a device is set, reset, or gives its default context or stream: threads share those."""
DEVICES: list[Device] = []
ON_RELEASE: list[Callable[[Context], None]] = []
"""What else ends with a context: streams, models."""


def devices() -> list[Device]:
    """The devices that this process may use; ASCEND_RT_VISIBLE_DEVICES is read once, at first use (pyacl.md §6.6)."""
    with SETTING:
        if not DEVICES:
            DEVICES.extend(Device(index=i, physical=p) for i, p in enumerate(_visible()))
        return DEVICES


def _visible() -> list[int]:
    """Physical ids; an empty or absent variable means all, parsing ends at the first entry that is wrong."""
    count = device_count()
    listed = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if not listed:
        return list(range(count))
    found: list[int] = []
    for text in map(str.strip, listed.split(",")):
        if not text.isdecimal() or int(text) >= count or (found and int(text) <= found[-1]):
            break
        found.append(int(text))
    return found


def current() -> Context | None:
    """The context of this thread."""
    context: Context | None = getattr(THREAD, "context", None)
    return context if context is not None and context.alive else None


def required() -> Context:
    """The context of this thread; 107002 where there is none."""
    context = current()
    if context is None:
        raise Failed(errors.RT_CONTEXT_NULL)
    return context


def device_of(index: int) -> Device:
    known = devices()
    if 0 <= index < len(known):
        return known[index]
    why = f"deviceId must be in [0, {len(known)})"
    raise errors.refused(errors.RT_INVALID_DEVICEID, "EL0002", value=index, reason=why)


def _new_context(device: Device, *, own: bool) -> Context:
    with SETTING:
        if device.arena is None:  # allocations can use what the card has minus what its system keeps [inferred]
            total = hbm_mb()
            reserved = min(RESERVED_HBM_MB, round(total * RESERVED_HBM_MB / 65536))
            device.arena = memory.open_arena((total - reserved) << 20)
        context = Context(device=device, own=own)
        device.contexts[handles.give(context)] = context
        return context


def end(context: Context) -> None:
    for release in ON_RELEASE:
        release(context)
    context.alive = False
    handles.drop(context.handle)
    del context.device.contexts[context.handle]


@call("rt", "i", "r")
def set_device(device_id: int) -> None:
    device = device_of(device_id)
    with SETTING:
        device.sets += 1
        device.default = device.default or _new_context(device, own=True)
    THREAD.context = device.default


@call("rt", "i", "kr")
def create_context(device_id: int) -> int:
    """Current in this thread from now on."""
    THREAD.context = _new_context(device_of(device_id), own=False)
    return int(THREAD.context.handle)


@call("rt", "k", "r")
def destroy_context(context: int) -> None:
    """Only explicit ones; the default context, and one that is gone already, give 107002."""
    errors.present(context=context)
    found = handles.look(context, Context)
    if found is None or found.own:
        raise Failed(errors.RT_CONTEXT_NULL)
    end(found)


@call("rt", "k", "r")
def set_context(context: int) -> None:
    errors.present(context=context)
    THREAD.context = handles.need(context, Context, what="context", code=errors.RT_CONTEXT_NULL)


ask("rt", "", "ir", get_run_mode=lambda: _HOST, get_device=lambda: required().device.index)
ask("rt", "", "Ir", get_device_count=lambda: len(devices()))
ask("rt", "", "kr", get_context=lambda: getattr(current(), "handle", 0))


# --- what this process holds and does, for npu-smi ---

REPORTING = {"on": bool(os.environ.get("CANN_EMULATOR_STATE"))}
_EVERY_S = 0.1
_USE_LOCK = threading.RLock()
_REPORTED: list[tuple[float, dict[int, float]]] = []
"""When the last report was made, on the real clock, in seconds; and by device the virtual time it had computed then."""


def update_use() -> None:
    """Report, unless that was done a moment ago; a load is the share of the time since then that was computed."""
    now = time.monotonic()
    then, busy_us = _REPORTED[-1] if _REPORTED else (now, {})
    if not REPORTING["on"] or (_REPORTED and now - then < _EVERY_S):
        return
    per_percent_us = (now - then) * 1e4 or 1.0
    with _USE_LOCK:
        _REPORTED[:] = [(now, {device.index: device.busy_us for device in devices()})]
        report_use(
            {
                d.physical: DeviceUse(
                    hbm_bytes=d.arena.used if d.arena else 0,
                    aicore_percent=min(100.0, (d.busy_us - busy_us.get(d.index, d.busy_us)) / per_percent_us),
                )
                for d in devices()
                if d.contexts or (d.arena is not None and d.arena.used)
            }
        )


atexit.register(lambda: report_use({}) if _REPORTED else None)
os.register_at_fork(after_in_child=_REPORTED.clear)
