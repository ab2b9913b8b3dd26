"""Threads of one process that set devices, allocate and free at the same moment (pyacl.md §3.4)."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.cann_emulator.acl.library import ok, taken
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import memory


@pytest.fixture(autouse=True)
def hasty_threads() -> Iterator[None]:
    """The interpreter changes threads as often as it can, so that a race is seen in a second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(count: int, work: Callable[[int], None]) -> None:
    start, failures = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_that_set_a_device_at_once_share_one_default_context() -> None:
    ok(acl.init())
    for _ in range(40):
        contexts = set[int]()

        def work(_: int, contexts: set[int] = contexts) -> None:
            ok(acl.rt.set_device(0))
            contexts.add(taken(acl.rt.get_context()))

        together(8, work)
        assert len(contexts) == 1
        assert [acl.rt.reset_device(0) for _ in range(9)] == [0] * 8 + [507007]


def test_a_destructor_that_frees_while_the_library_allocates_does_not_block(device: int) -> None:
    """The collector may run at any allocation of Python's, also inside of the library."""
    blocks, hosts = [taken(acl.rt.malloc(64, 0))], [taken(acl.rt.malloc_host(64))]
    freed = []

    class Dropped:
        def __del__(self) -> None:
            freed.append((acl.rt.free(blocks.pop()), acl.rt.free_host(hosts.pop())))

    with memory.ARENAS[0].lock, memory._PINNING:
        dropped = Dropped()
        dropped.itself = dropped  # type: ignore[attr-defined]  # a cycle, which only the collector ends
        del dropped
        gc.collect()
    assert freed == [(0, 0)]
