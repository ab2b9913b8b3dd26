"""Device and host memory: what each mistake gives, and bytes that stay what they are (pyacl.md §1.4, §2.5, §9)."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cann_emulator.acl.library import ok, run_source, start_over, strictly, taken
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import memory
from workbench.cann_emulator.acl.errors import NotEstablished
from workbench.cann_emulator.acl.util import HostAccessToDevice


def content(pointer: int, size: int) -> bytes:
    target = np.empty(size, np.uint8)
    ok(acl.rt.memcpy(acl.util.numpy_to_ptr(target), size, pointer, size, 2))
    return target.tobytes()


MISTAKES: dict[str, tuple[Callable[[int, int], int], int]] = {
    "double free": (lambda d, h: acl.rt.free(d) or acl.rt.free(d), 207002),
    "free of a host address": (lambda d, h: acl.rt.free(h), 207002),
    "free inside of a block": (lambda d, h: acl.rt.free(d + 64), 207002),
    "wrong kind of free": (lambda d, h: acl.rt.free(acl.rt.malloc_host(8)[0]), 207002),
    "free_host of device memory": (lambda d, h: acl.rt.free_host(d), 207002),
    "read behind a block": (lambda d, h: acl.rt.memcpy(h, 4096, d + 64, 4096, 2), 507899),
    "use after free": (lambda d, h: acl.rt.free(d) or acl.rt.memcpy(d, 8, h, 8, 1), 507899),
    "memset beyond its maximum": (lambda d, h: acl.rt.memset(d, 8, 0, 9), 107000),
}


def test_what_is_not_established_gives_a_code_and_raises_in_strict_mode(device: int) -> None:
    """pyacl.md §2.5 "not established", §9 "strict mode"; the codes are [inferred]."""
    storage = ctypes.create_string_buffer(8192)
    for name, (call, code) in MISTAKES.items():
        assert call(taken(acl.rt.malloc(128, 0)), ctypes.addressof(storage)) == code, name
        with strictly(), pytest.raises(NotEstablished):
            call(taken(acl.rt.malloc(128, 0)), ctypes.addressof(storage))


@pytest.mark.parametrize("call", [lambda p: acl.util.ptr_to_bytes(p, 4), lambda p: acl.util.ptr_to_numpy(p, (4,), 1)])
def test_reading_device_memory_as_host_memory_fails_loudly(device: int, call: Callable[[int], object]) -> None:
    """pyacl.md §4 row 10."""
    with pytest.raises(HostAccessToDevice, match="Copy to the host"):
        call(taken(acl.rt.malloc(4, 0)))


def test_host_code_that_touches_a_device_address_dies(tree: Path) -> None:
    """pyacl.md §9: device memory is private; a host dereference crashes as on a server."""
    source = """
import acl, ctypes
acl.init(); acl.rt.set_device(0)
pointer, _ = acl.rt.malloc(64, 0)
print("before", flush=True)
ctypes.string_at(pointer, 4)
print("after")
"""
    done = run_source(source, tree)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "before\n")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sequence_of_malloc_copy_set_and_free_keeps_every_byte(data: st.DataObject) -> None:
    """Against a model of bytearrays; sizes cross pages and chunks, offsets are anywhere inside."""
    start_over()
    ok(acl.init())
    ok(acl.rt.set_device(0))
    blocks: list[tuple[int, bytearray]] = []
    for _ in range(data.draw(st.integers(5, 25))):
        step = data.draw(st.sampled_from(["malloc", "write", "read", "set", "move", "free"]))
        if step == "malloc" or not blocks:
            size = data.draw(st.one_of(st.integers(1, 9000), st.sampled_from([262_143, 262_145, 600_000])))
            blocks.append((taken(acl.rt.malloc(size, 0)), bytearray([memory.FRESH]) * size))
            continue
        index = data.draw(st.integers(0, len(blocks) - 1))
        pointer, held = blocks[index]
        offset = data.draw(st.integers(0, len(held) - 1))
        count = data.draw(st.integers(1, len(held) - offset))
        if step == "write":
            written = np.random.default_rng(data.draw(st.integers(0, 9))).bytes(count)
            ok(acl.rt.memcpy(pointer + offset, count, acl.util.bytes_to_ptr(written), count, 1))
            held[offset : offset + count] = written
        elif step == "read":
            assert content(pointer + offset, count) == bytes(held[offset : offset + count])
        elif step == "set":
            ok(acl.rt.memset(pointer + offset, count, 7, count))
            held[offset : offset + count] = b"\7" * count
        elif step == "move":
            target, other = blocks[data.draw(st.integers(0, len(blocks) - 1))]
            moved = min(count, len(other))
            if target != pointer:
                ok(acl.rt.memcpy(target, moved, pointer + offset, moved, 3))
                other[:moved] = held[offset : offset + moved]
        else:
            ok(acl.rt.free(pointer))
            del blocks[index]
    for pointer, held in blocks:
        assert content(pointer, len(held)) == bytes(held)
