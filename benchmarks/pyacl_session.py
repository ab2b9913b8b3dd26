"""Host time that an Ascend session adds to pyACL's own calls.

    python -m benchmarks.pyacl_session

Four loops over the same tiny model, in turns, on the emulated acl: the session; the least code that makes the same
calls, nothing checked; the same without events and set_context; and the form of the vendor's samples (bytes objects,
memcpy, the synchronous execute). What the emulator needs for its numbers is the same in all of them. So `own` is what
the session's Python costs a call, and `timed` what its events and its set_context cost here.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.targets.ascend.offline_files import Array, expected, grid, texts
from workbench.cann_emulator import acl

sys.modules.setdefault("acl", acl)

from workbench.targets.ascend.acl.process import shut_down  # noqa: E402  after acl is in its place
from workbench.targets.ascend.acl.session import open_session  # noqa: E402  after acl is in its place

Call = Callable[[Mapping[str, Array]], Any]
CALLS, ROUNDS = 200, 20


def load(path: Path) -> tuple[int, int]:
    model_id, _ = acl.mdl.load_from_file(str(path))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model_id)
    return model_id, desc


def dataset(sizes: list[int]) -> tuple[int, list[int]]:
    handle, pointers = acl.mdl.create_dataset(), []
    for size in sizes:
        pointer, _ = acl.rt.malloc(size, 0)
        acl.mdl.add_dataset_buffer(handle, acl.create_data_buffer(pointer, size))
        pointers.append(pointer)
    return handle, pointers


def sizes_of(desc: int) -> tuple[list[int], list[int]]:
    inputs = [acl.mdl.get_input_size_by_index(desc, i) for i in range(acl.mdl.get_num_inputs(desc))]
    return inputs, [acl.mdl.get_output_size_by_index(desc, i) for i in range(acl.mdl.get_num_outputs(desc))]


def least(path: Path, batch: int, length: int, *, timed: bool) -> Call:
    """The same pyACL calls as the session's, without its checks, filling up and choice of a file."""
    context, _ = acl.rt.get_context()
    events = [acl.rt.create_event_with_flag(8)[0] for _ in range(4)]
    model_id, desc = load(path)
    stream, _ = acl.rt.create_stream()
    in_sizes, out_sizes = sizes_of(desc)
    inputs, in_pointers = dataset(in_sizes)
    outputs, out_pointers = dataset(out_sizes)

    def pinned(size: int, dtype: Any, shape: tuple[int, ...]) -> tuple[int, Array]:
        address, _ = acl.rt.malloc_host(size)
        storage = (ctypes.c_uint8 * size).from_address(address)
        return address, np.frombuffer(storage, np.uint8).view(dtype).reshape(shape)

    hosts = [pinned(size, np.int64, (batch, length)) for size in in_sizes]
    results = [
        pinned(out_sizes[0], np.float32, (batch, 3)),
        pinned(out_sizes[1], np.float32, (batch, length, 2)),
    ]

    def record(number: int) -> None:
        if timed:
            acl.rt.record_event(events[number], stream)

    def call(feeds: Mapping[str, Array]) -> list[Array]:
        if timed:
            acl.rt.set_context(context)
        record(0)
        for name, (address, view), device, size in zip(("ids", "mask"), hosts, in_pointers, in_sizes, strict=True):
            view[...] = feeds[name]
            acl.rt.memcpy_async(device, size, address, size, 1, stream)
        record(1)
        acl.mdl.execute_async(model_id, inputs, outputs, stream)
        record(2)
        for (address, _), device, size in zip(results, out_pointers, out_sizes, strict=True):
            acl.rt.memcpy_async(address, size, device, size, 2, stream)
        record(3)
        acl.rt.synchronize_stream_with_timeout(stream, 300_000)
        return [view.copy() for _, view in results]

    return call


def sample(path: Path, batch: int, length: int) -> Call:
    """What the vendor's samples do: bytes, blocking copies, the synchronous call."""
    model_id, desc = load(path)
    in_sizes, out_sizes = sizes_of(desc)
    inputs, in_pointers = dataset(in_sizes)
    outputs, out_pointers = dataset(out_sizes)

    def call(feeds: Mapping[str, Array]) -> list[Array]:
        for name, device, size in zip(("ids", "mask"), in_pointers, in_sizes, strict=True):
            held = feeds[name].tobytes()
            acl.rt.memcpy(device, size, acl.util.bytes_to_ptr(held), size, 1)
        acl.mdl.execute(model_id, inputs, outputs)
        found = []
        for device, size in zip(out_pointers, out_sizes, strict=True):
            room = bytes(size)
            acl.rt.memcpy(acl.util.bytes_to_ptr(room), size, device, size, 2)
            found.append(np.frombuffer(room, np.float32))
        return found

    return call


def measure(calls: Mapping[str, Call], feeds: Mapping[str, Array]) -> dict[str, float]:
    """Microseconds of a call: the median over rounds of each round's median, loops in turns."""
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            times = []
            for _ in range(CALLS):
                start_ns = time.perf_counter_ns()
                call(feeds)
                times.append((time.perf_counter_ns() - start_ns) / 1e3)
            if number:  # the first round warms up
                medians[name].append(statistics.median(times))
    return {name: statistics.median(values) for name, values in medians.items()}


def main() -> None:
    print(f"{CALLS} calls × {ROUNDS} rounds each; microseconds of host time a call, emulator included\n")
    print(f"{'shape':>8} {'session':>9} {'same':>9} {'untimed':>9} {'samples':>9} {'own':>9} {'timed':>9}")
    for batch, length in itertools.product((1, 16), (32, 512)):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            session = open_session(directory, grid((batch,), (length,), directory))
            file = directory / f"b{batch}_s{length}.om"
            feeds = texts(batch, length)
            calls = {
                "session": session.run,
                "same": least(file, batch, length, timed=True),
                "untimed": least(file, batch, length, timed=False),
                "samples": sample(file, batch, length),
            }
            logits = expected(feeds)["logits"]
            for name, call in calls.items():
                found = call(feeds)
                found = found["logits"] if isinstance(found, dict) else found[0].reshape(logits.shape)
                assert np.array_equal(found, logits), name
            us = measure(calls, feeds)
            print(
                f"{batch:>4}×{length:<4} "
                + " ".join(f"{value:9.1f}" for value in us.values())
                + f" {us['session'] - us['same']:9.1f} {us['same'] - us['untimed']:9.1f}"
            )
            session.close()
    shut_down()


if __name__ == "__main__":
    main()
