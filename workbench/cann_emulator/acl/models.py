"""Loaded models, their descriptions and data types (pyacl.md §1.5, §2.3, §2.5 "Model", §7)."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl import errors, handles, memory
from workbench.cann_emulator.acl.handles import Made, Site
from workbench.cann_emulator.acl.rt_device import ON_RELEASE, SOC_NAME, Context
from workbench.cann_emulator.om import Gear, NotAnOm, OfflineModel, Tensor, input_shapes, read_om

if TYPE_CHECKING:
    from workbench.cann_emulator.executable import Executable

DTYPE_CODES: Mapping[str, int] = {
    **{"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4},
    **{"int64": 9, "uint64": 10, "bool": 12, "bfloat16": 27},
}

DTYPE_BYTES: Mapping[int, int] = {
    **{0: 4, 1: 2, 2: 1, 3: 4, 4: 1, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 12: 1, 13: 0, 16: 8, 17: 16, 27: 2},
    **{29: 1, 30: 1, 33: 4, 34: 1, 35: 1, 36: 1, 37: 1, 38: 1, 39: 1, 40: 1, 41: 1},
}
"""Bytes per element as `acl.data_type_size` gives them; 38 to 41 are [inferred] from int4, which gives 1."""

_STORED: Mapping[str, str] = {"bfloat16": "uint16"}
"""What numpy has no type for travels as words."""


def numpy_dtype(name: str) -> npt.DTypeLike:
    return np.dtype(_STORED.get(name, name))


def item_bytes(name: str) -> int:
    return DTYPE_BYTES[DTYPE_CODES[name]]


# --- loads and descriptions ---

GEAR_INPUT = "ascend_mbatch_shape_data"
SYNCHRONOUS, ASYNCHRONOUS = "execute", "execute_async"
_MOST_KEPT_BYTES = 512 << 20

_IDS = itertools.count(1)
LOADED: dict[int, LoadedModel] = {}
_RUNNABLES: dict[bytes, Runnable] = {}
"""By digest of the content, those used last: the same file loaded again shares what was built for it."""
_KEEPING = threading.RLock()


@dataclass(slots=True, kw_only=True)
class Runnable:
    """An executable that several loads of the same content share; it is built at its first execution."""

    model: OfflineModel
    lock: threading.Lock = field(default_factory=threading.Lock)
    executable: Executable | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class LoadedModel:
    """One load.

    Attributes:
        called: which of execute and execute_async was used; the two exclude each other on one load.
        gear: index of the gear set last; None before.
        name: for dumps and profiles: the file's name without suffix, or the model's own.
        blocks: device memory that the library allocated for it.
        times_ns: by gear, what `clock` worked out before.
    """

    KIND: ClassVar[str] = "loaded models"
    own: ClassVar[bool] = False
    id: int = field(default_factory=lambda: next(_IDS))
    model: OfflineModel
    runnable: Runnable
    context: Context
    name: str
    site: Site
    blocks: list[memory.Block] = field(default_factory=list)
    called: str = ""
    gear: int | None = None
    times_ns: dict[int, tuple[int, int]] = field(default_factory=dict)
    executions: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Description(Made):
    """What `create_desc` gives; filled by `get_desc`.

    Attributes:
        of: the load it was filled from; None before.
    """

    KIND: ClassVar[str] = "model descriptions"
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    model: OfflineModel | None = None
    of: LoadedModel | None = None


def parse(content: bytes) -> Runnable:
    """The model of an OM's content.

    Raises:
        Failed: with the code of what is wrong with it.
    """
    with _KEEPING:
        digest = hashlib.sha256(content).digest()
        if digest in _RUNNABLES:
            _RUNNABLES[digest] = _RUNNABLES.pop(digest)  # the last one used
            return _RUNNABLES[digest]
        try:
            model = read_om(content)
        except NotAnOm as error:
            # Broken content behind a good header: not established per case, [inferred]
            code = errors.GE_LOAD_MODEL_PARTITION_FAILED if error.header else errors.GE_EXEC_MODEL_DATA_SIZE_INVALID
            text = f"The offline model cannot be read: {error}."
            raise errors.refused(code, "E19999", message=text) from error
        if model.soc_version != SOC_NAME:
            text = f"The model was compiled for {model.soc_version}; this device is {SOC_NAME}."
            raise errors.refused(errors.GE_FAILURE, "E19999", message=text)  # [inferred]
        runnable = _RUNNABLES[digest] = Runnable(model=model)
        while len(_RUNNABLES) > 1 and sum(len(k.model.graph) for k in _RUNNABLES.values()) > _MOST_KEPT_BYTES:
            del _RUNNABLES[next(iter(_RUNNABLES))]  # loads of it keep it
        return runnable


def unload(entry: LoadedModel) -> None:
    del LOADED[entry.id]
    give_back(entry)


def unload_all() -> None:
    """The graph engine ends with `acl.finalize`."""
    for entry in list(LOADED.values()):
        unload(entry)


def executable(entry: LoadedModel) -> Executable:
    runnable = entry.runnable
    with runnable.lock:
        if runnable.executable is None:
            from workbench.cann_emulator.executable import Executable

            runnable.executable = Executable(runnable.model)
        return runnable.executable


def describe(of: LoadedModel, description: Description) -> None:
    """Fill a description; what it held is gone."""
    model = of.model
    extra = Tensor(name=GEAR_INPUT, dtype="int32", shape=(gear_values(model),))
    description.inputs = (*model.inputs, extra) if model.gear_kind else model.inputs
    # a file that was made without the compiler has no names in the form of acl
    names = model.output_names or tuple(tensor.name for tensor in model.outputs)
    named = zip(names, model.outputs, strict=True)
    description.outputs = tuple(replace(tensor, name=name) for name, tensor in named)
    description.model, description.of = model, of


def gear_values(model: OfflineModel) -> int:
    """How many numbers choose a gear (pyacl.md §7): one batch, height and width, or every dynamic axis."""
    if model.gear_kind == "dynamic_batch_size":
        return 1
    if model.gear_kind == "dynamic_image_size":
        return 2
    return sum(size == -1 for tensor in model.inputs for size in tensor.shape)


def gear_key(model: OfflineModel, gear: Gear) -> tuple[int, ...]:
    """The numbers that choose this gear."""
    return gear.dims[: gear_values(model)]


def input_bytes(model: OfflineModel, index: int) -> int:
    """Size of an input, of the largest gear."""
    if index == len(model.inputs):
        return 4 * gear_values(model)
    item = item_bytes(model.inputs[index].dtype)
    return max(prod(input_shapes(model, gear)[index]) for gear in model.gears) * item


def output_shape(model: OfflineModel, index: int, gear: int | None = None) -> tuple[int, ...]:
    """At a gear; the largest where none is given."""
    if not model.gear_kind:
        return model.outputs[index].shape
    if gear is not None:
        return model.gears[gear].outputs[index].shape
    return max((g.outputs[index].shape for g in model.gears), key=prod)


def output_bytes(model: OfflineModel, index: int) -> int:
    """Size of an output, of the largest gear; as large as can be where only the data tell."""
    shape = output_shape(model, index)
    if -1 in shape:
        shape = max((g.outputs[index].shape for g in model.gears), key=prod)
    return prod(shape) * item_bytes(model.outputs[index].dtype)


def give_back(entry: LoadedModel) -> None:
    """Release the memory that the library allocated for a load."""
    arena = entry.context.device.arena
    for block in entry.blocks:
        if arena is not None and arena.blocks.get(block.address) is block:
            memory.release(arena, block)
    entry.blocks.clear()


def _end_with(context: Context) -> None:
    for entry in list(LOADED.values()):
        if entry.context is context:
            handles.reclaim(entry)
            unload(entry)


ON_RELEASE.append(_end_with)
handles.REGISTRIES.append(lambda: [LOADED])
