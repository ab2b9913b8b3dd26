"""The module `acl.media`, as far as it is memory: picture and video processing is not emulated."""

from __future__ import annotations

from workbench.cann_emulator.acl import rt_memory
from workbench.cann_emulator.acl.call import call


@call("k", "kr")
def dvpp_malloc(size: int) -> tuple[int, int]:
    """Device memory that the picture units may use."""
    return rt_memory.malloc_block(size)


@call("k", "r")
def dvpp_free(ptr: int) -> int:
    return rt_memory.free_block(ptr)


__all__ = ["dvpp_free", "dvpp_malloc"]


def __dir__() -> list[str]:
    return sorted(__all__)
