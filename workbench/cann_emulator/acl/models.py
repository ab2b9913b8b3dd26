"""Loads of offline models (pyacl.md §1.5, §2.5 "Model", §3.1), and data types (§2.3)."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from workbench.cann_emulator.acl import errors, handles, memory, rt_device, rt_memory
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import Failed, require_init
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.acl.rt_device import ON_RELEASE, SOC_NAME, Context
from workbench.cann_emulator.om import NotAnOm, OfflineModel, read_om

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
_MOST_KEPT_BYTES = 512 << 20


def item_bytes(name: str) -> int:
    return DTYPE_BYTES[DTYPE_CODES[name]]


@dataclass(slots=True)
class Runnable:
    """An executable that several loads of the same content share; it is built at its first execution."""

    model: OfflineModel
    lock: threading.Lock = field(default_factory=threading.Lock)
    executable: Executable | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class LoadedModel(Made):
    """One load, whose handle is its id."""

    KIND: ClassVar[str] = "loaded models"
    model: OfflineModel
    runnable: Runnable
    context: Context
    name: str  # for dumps and profiles: the file's name without suffix, or the model's own
    blocks: list[memory.Block] = field(default_factory=list)  # device memory that the library allocated for it
    called: str = ""  # which of execute and execute_async was used; the two exclude each other on one load
    gear: int | None = None  # index of the gear set last; None before
    times_ns: dict[int, tuple[int, int]] = field(default_factory=dict)  # by gear, what `clock` worked out before
    executions: int = 0


_IDS = itertools.count(1)
_RUNNABLES: dict[bytes, Runnable] = {}
"""By digest of the content, those used last: the same file loaded again shares what was built for it."""
_KEEPING = threading.RLock()

Source = str | tuple[int, int]
"""Of a model: a file, or pointer and size of host memory, whose bytes are not needed after the call."""


def _load(source: Source, work: int = 0, work_size: int = 0, weight: int = 0, weight_size: int = 0) -> int:
    """The id of a new load. Device memory of the caller has pointer and size; what has a null pointer is allocated."""
    require_init()
    content, context = _content(source), rt_device.required()
    runnable = _parsed(content)
    model = runnable.model
    parts = (("work", work, work_size, model.work_bytes), ("weight", weight, weight_size, model.weight_bytes))
    for part, pointer, size, needed in parts:
        if pointer and (memory.arena_of(pointer) is None or not size):
            raise errors.undefined(f"load with {size} bytes at {pointer:#x} as device memory", errors.GE_FAILURE)
        if pointer and size < needed:
            text = f"The {part} size of model {model.name} is {needed}, but the input size set by user is {size}"
            raise errors.refused(errors.GE_FAILURE, "E13025", reason=text)
    name = Path(source).stem if isinstance(source, str) else model.name
    entry = LoadedModel(handle=next(_IDS), model=model, runnable=runnable, context=context, name=name)
    for needed in [needed for _, pointer, _, needed in parts if needed and not pointer]:
        block = rt_memory.grab(context, needed, "a loaded model")
        if block is None:
            _give_back(entry)
            raise Failed(errors.GE_MEMORY_ALLOCATION)
        entry.blocks.append(block)
    return handles.give(entry)


def _sizes(source: Source) -> tuple[int, int]:
    """Bytes of work memory and of weight memory."""
    model = _parsed(_content(source)).model
    return model.work_bytes, model.weight_bytes


for _more, _forms in (("", ""), ("_with_mem", "kkkk")):
    call("mdl", f"s{_forms}", "Ir", name=f"load_from_file{_more}")(_load)
    call("mdl", f"kk{_forms}", "Ir", name=f"load_from_mem{_more}")(lambda at, size, *memory: _load((at, size), *memory))
ask("mdl", "s", "kkr", query_size=_sizes)
ask("mdl", "kk", "kkr", query_size_from_mem=lambda model, size: _sizes((model, size)))


@call("mdl", "I", "r")
def unload(model_id: int) -> None:
    entry = found(model_id)
    if rt_device.current() is not entry.context:
        errors.undefined(f"unload of model {model_id} in another context than the one that loaded it")
    _give_back(entry)


def found(model_id: int) -> LoadedModel:
    """A loaded model."""
    require_init()
    entry = handles.look(model_id, LoadedModel)
    if entry is None:
        text = f"Model id {model_id} is invalid: no model of this id is loaded."
        raise errors.refused(errors.GE_EXEC_MODEL_ID_INVALID, "E19999", message=text)
    return entry


def executable(entry: LoadedModel) -> Executable:
    with entry.runnable.lock:
        if entry.runnable.executable is None:
            from workbench.cann_emulator.executable import Executable

            entry.runnable.executable = Executable(entry.runnable.model)
        return entry.runnable.executable


def unload_all() -> None:
    """The graph engine ends with `acl.finalize`."""
    for entry in handles.alive(LoadedModel):
        _give_back(entry)


def _give_back(entry: LoadedModel) -> None:
    """Forget a load, and release the memory that the library allocated for it."""
    handles.drop(entry.handle)
    arena = entry.context.device.arena
    for block in entry.blocks:
        if arena is not None and arena.blocks.get(block.address) is block:
            memory.release(arena, block)
    entry.blocks.clear()


def _end_with(context: Context) -> None:
    for entry in handles.alive(LoadedModel):
        if entry.context is context:
            handles.reclaim(entry)
            _give_back(entry)


ON_RELEASE.append(_end_with)


def _content(source: Source) -> bytes:
    if isinstance(source, str):
        try:
            return Path(source).read_bytes()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise errors.refused(errors.GE_EXEC_MODEL_PATH_INVALID, "E13026", path=source, reason=why) from error
    address, size = source
    errors.present(model=address and size)
    if memory.arena_of(address) is not None:  # the vendor's host code would crash
        fact = f"a model at device address {address:#x}: with run mode host it must lie in host memory"
        raise errors.undefined(fact, errors.GE_EXEC_MODEL_DATA_SIZE_INVALID)
    return ctypes.string_at(address, size)


def _parsed(content: bytes) -> Runnable:
    """The model of an OM's content."""
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
        runnable = _RUNNABLES[digest] = Runnable(model)
        while len(_RUNNABLES) > 1 and sum(len(k.model.graph) for k in _RUNNABLES.values()) > _MOST_KEPT_BYTES:
            del _RUNNABLES[next(iter(_RUNNABLES))]  # loads of it keep it
        return runnable
