"""Modules that programs touch beside models, and those that are not emulated."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cann_emulator.acl.library import ok, run_source, saved, taken
from tests.cann_emulator.handmade import offline_model
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import memory


def test_the_log_of_a_program_and_a_failing_kernel_stay_off_the_console(tree: Path, tmp_path: Path) -> None:
    """pyacl.md §1.1: app_log writes to the CANN log."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"])]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [4, 2])],
        [numpy_helper.from_array(np.ones((8, 2), np.float32), "table")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = saved(offline_model(proto, dtype="float32"), tmp_path)
    source = f"""
import acl, numpy as np
acl.app_log(3, "an error of the program")
acl.init(), acl.rt.set_device(0)
model, _ = acl.mdl.load_from_file({path!r})
ids = np.full(4, 99)
sets = []
for size in (32, 32):
    there, _ = acl.rt.malloc(size, 0)
    sets.append(acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), acl.create_data_buffer(there, size))[0])
    acl.rt.memcpy(there, size, ids.ctypes.data, size, 1)
print(acl.mdl.execute(model, *sets))
"""
    done = run_source(source, tree, env={"CANN_EMULATOR_LEAKS": "off"})
    assert (done.stdout, done.stderr) == ("507015\n", "")


def test_modules_of_the_vendor_that_are_not_emulated_are_refused_by_name(tree: Path) -> None:
    source = "import acl\nprint(*(hasattr(acl, m) for m in ('himpi', 'media', 'op')))\nacl.himpi.sys_init()"
    done = run_source(source, tree)
    assert done.stdout == "False False False\n"
    assert done.stderr.endswith(
        "AttributeError: acl.himpi, the second interface of the picture and video units (DVPP), is not emulated\n"
    )
    with pytest.raises(AttributeError, match="module 'acl' has no attribute 'nothing'"):
        acl.nothing  # noqa: B018  # the look-up is what is tested


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
