"""Threads of one process that set devices, allocate and free at the same moment (pyacl.md §3.4)."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cann_emulator.acl.library import multilayer, ok, saved, taken
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import memory, models


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


def test_threads_that_set_a_device_at_once_share_one_default_context_and_stream() -> None:
    ok(acl.init())
    for _ in range(40):
        contexts, streams = set[int](), set[int]()

        def work(_: int, contexts: set[int] = contexts, streams: set[int] = streams) -> None:
            ok(acl.rt.set_device(0))
            contexts.add(taken(acl.rt.get_context()))
            streams.add(taken(acl.rt.ctx_get_current_default_stream()))

        together(8, work)
        assert (len(contexts), len(streams)) == (1, 1)
        assert [acl.rt.reset_device(0) for _ in range(9)] == [0] * 8 + [507007]


def test_threads_allocate_copy_and_free_at_once(device: int) -> None:
    context, there = taken(acl.rt.get_context()), taken(acl.rt.malloc(64, 0))

    def work(number: int) -> None:
        ok(acl.rt.set_context(context))
        chance, mine = random.Random(number), list[int]()
        for _ in range(250):
            mine.append(taken(acl.rt.malloc_host(64)))
            block = taken(acl.rt.malloc(64, 0))
            ok(acl.rt.memcpy(block + 8, 8, mine[-1], 8, 1))
            ok(acl.rt.memcpy_async(mine[-1], 8, there, 8, 2, 0))
            ok(acl.rt.free(block))
            if len(mine) > 5:
                ok(acl.rt.synchronize_stream(0))
                ok(acl.rt.free_host(mine.pop(chance.randrange(5))))
        ok(acl.rt.synchronize_stream(0))
        for host in mine:
            ok(acl.rt.free_host(host))

    together(6, work)
    assert not memory.PINNED
    assert not memory._PINNED_STARTS
    assert memory.ARENAS[0].starts == [there]


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


def test_threads_load_and_unload_at_once(device: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_MOST_KEPT", 2)
    context = taken(acl.rt.get_context())
    paths = [saved(multilayer(batch=batch), tmp_path, f"{batch}.om") for batch in range(1, 6)]

    def work(number: int) -> None:
        ok(acl.rt.set_context(context))
        for turn in range(30):
            model = taken(acl.mdl.load_from_file(paths[(number + turn) % len(paths)]))
            ok(acl.mdl.unload(model))

    together(6, work)
