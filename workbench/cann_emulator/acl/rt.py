"""The module `acl.rt`: devices, contexts, streams, events, memory."""

from __future__ import annotations

from workbench.cann_emulator.acl import rt_device, rt_memory, rt_stream
from workbench.cann_emulator.acl.call import declared

__all__ = declared(globals(), rt_device, rt_memory, rt_stream)


def __dir__() -> list[str]:
    return sorted(__all__)
