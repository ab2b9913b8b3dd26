"""The emulated library in a known state, models to run on it, and programs that run on it by themselves."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.cann_emulator.atc.compiling import built, mlp
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import clock, dumping, errors, handles, memory, models, profile, rt_device
from workbench.cann_emulator.om import OfflineModel, write_om

Array = npt.NDArray[Any]
X = np.random.default_rng(5).standard_normal((5, 16)).astype(np.float32)
"""An input of `multilayer`."""


def start_over() -> None:
    """What a new process would find."""
    errors.arm("")
    for device in rt_device.devices():
        if device.arena is not None or device.contexts:
            while acl.rt.reset_device(device.index) == 0:
                pass
        device.busy_us = 0.0
    memory.ARENAS.clear()
    rt_device.DEVICES.clear()
    rt_device.THREAD.__dict__.clear()
    errors.arm("")
    models.unload_all()
    models._IDS = itertools.count(1)
    clock._CLOCK["ns"] = 0
    handles.LIVE.clear()
    for address in list(memory.PINNED):
        memory.unpin(address)
    handles.reclaimed.clear()
    dumping.configure({})
    process = errors.PROCESS
    profile.begin()
    process.references, process.content, process.finalized = 0, None, False
    errors.take()
    errors.STRICT["on"] = False


@contextmanager
def strictly() -> Iterator[None]:
    errors.STRICT["on"] = True
    try:
        yield
    finally:
        errors.STRICT["on"] = False


def text() -> str:
    return acl.get_recent_err_msg() or ""


def ok(ret: int) -> None:
    assert ret == 0, (ret, acl.get_recent_err_msg())


def taken(result: tuple[Any, int]) -> Any:
    value, ret = result
    ok(ret)
    return value


# ---- models ----


@functools.cache
def multilayer() -> OfflineModel:
    """`x` float32 (5, 16) → `y` float32 (5, 4)."""
    return built(mlp(16, 8, 4, batch=5))


def batch_gears() -> OfflineModel:
    """The same with gears of 1, 4 and 8 rows."""
    proto = mlp(16, 8, 4)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return built(proto, input_shape="x:-1,16", dynamic_batch_size="1,4,8")


def saved(model: OfflineModel, folder: Path, name: str = "model.om") -> str:
    file = folder / name
    file.write_bytes(write_om(model))
    return str(file)


# ---- a program's side of a model ----


@dataclass
class Loaded:
    """A model with its description, memory and datasets, as programs keep them."""

    id: int
    desc: int
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, int]]
    input_dataset: int
    output_dataset: int

    def put(self, *arrays: Array) -> None:
        for (pointer, size), array in zip(self.inputs, arrays, strict=False):
            ok(acl.rt.memcpy(pointer, size, acl.util.numpy_to_ptr(array), array.nbytes, 1))

    def get(self, index: int, dtype: Any, shape: tuple[int, ...]) -> Array:
        found = np.empty(shape, dtype)
        ok(acl.rt.memcpy(acl.util.numpy_to_ptr(found), found.nbytes, self.outputs[index][0], found.nbytes, 2))
        return found

    def run(self) -> int:
        ret: int = acl.mdl.execute(self.id, self.input_dataset, self.output_dataset)
        return ret


def opened(path: str) -> Loaded:
    model_id = taken(acl.mdl.load_from_file(path))
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model_id))
    inputs = [acl.mdl.get_input_size_by_index(desc, i) for i in range(acl.mdl.get_num_inputs(desc))]
    outputs = [acl.mdl.get_output_size_by_index(desc, i) for i in range(acl.mdl.get_num_outputs(desc))]
    given, wanted = ([(taken(acl.rt.malloc(n, 0)), n) for n in sizes] for sizes in (inputs, outputs))
    return Loaded(model_id, desc, given, wanted, dataset(given), dataset(wanted))


def dataset(memory: Sequence[tuple[int, int]]) -> int:
    handle: int = acl.mdl.create_dataset()
    for pointer, size in memory:
        _, ret = acl.mdl.add_dataset_buffer(handle, acl.create_data_buffer(pointer, size))
        ok(ret)
    return handle


# ---- programs ----


def environment(tree: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CANN_", "ASCEND_", "PYTEST"))}
    clean["PYTHONPATH"] = os.pathsep.join([str(tree / "python/site-packages"), str(Path(__file__).parents[3])])
    return {**clean, "OMP_NUM_THREADS": "1", **(extra or {})}


def run_source(source: str, tree: Path, *, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, env=environment(tree, env), capture_output=True, text=True, timeout=200, check=False)
