"""Load and unload of `acl.mdl` (pyacl.md §1.5, §2.5 "Model")."""

from __future__ import annotations

import ctypes
from pathlib import Path

from workbench.cann_emulator.acl import codes, contexts, memory, models, reason, strict
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context


@call("s", "Ir")
def load_from_file(path: str) -> tuple[int, int]:
    return _load_file(path)


@call("kk", "Ir")
def load_from_mem(model: int, size: int) -> tuple[int, int]:
    """From host memory, whose bytes are not needed after the call."""
    return _load_bytes(model, size)


@call("skkkk", "Ir")
def load_from_file_with_mem(path: str, work: int, work_size: int, weight: int, weight_size: int) -> tuple[int, int]:
    """With device memory of the caller; a null pointer leaves that part to the library."""
    return _load_file(path, (work, work_size), (weight, weight_size))


@call("kkkkkk", "Ir")
def load_from_mem_with_mem(
    model: int, size: int, work: int, work_size: int, weight: int, weight_size: int
) -> tuple[int, int]:
    return _load_bytes(model, size, (work, work_size), (weight, weight_size))


@call("I", "r")
def unload(model_id: int) -> int:
    entry, code = found(model_id)
    if entry is None:
        return code
    if contexts.current() is not entry.context:
        strict.undefined(f"unload of model {model_id} in another context than the one that loaded it", 0)
    models.unload(entry)
    return 0


@call("s", "kkr", device=False)
def query_size(path: str) -> tuple[int, int, int]:
    """Bytes of work memory and of weight memory."""
    content = content_of(path)
    return (0, 0, content) if isinstance(content, int) else _sizes(content)


@call("kk", "kkr", device=False)
def query_size_from_mem(model: int, size: int) -> tuple[int, int, int]:
    content = bytes_at(model, size)
    return (0, 0, content) if isinstance(content, int) else _sizes(content)


def found(model_id: int) -> tuple[models.LoadedModel | None, int]:
    """A loaded model, or the code for an id that is unknown, unloaded, or of a library that is finalized."""
    if not process.initialized():
        return None, codes.GE_EXEC_NOT_INIT
    entry = models.loaded(model_id)
    if entry is None:
        reason.report("E19999", reason=f"Model id {model_id} is invalid: no model of this id is loaded.")
        return None, codes.GE_EXEC_MODEL_ID_INVALID
    return entry, 0


Given = tuple[int, int] | None
"""Device memory of the caller: pointer and size."""


def _load_file(path: str, work: Given = None, weight: Given = None) -> tuple[int, int]:
    if not process.initialized():
        return 0, codes.GE_EXEC_NOT_INIT
    content = content_of(path)
    if isinstance(content, int):
        return 0, content
    return _load(content, Path(path).stem, work, weight)


def _load_bytes(model: int, size: int, work: Given = None, weight: Given = None) -> tuple[int, int]:
    if not model or not size:
        reason.report("EH0002", param="model")
        return 0, codes.INVALID_PARAM
    if not process.initialized():
        return 0, codes.GE_EXEC_NOT_INIT
    content = bytes_at(model, size)
    if isinstance(content, int):
        return 0, content
    return _load(content, None, work, weight)


def _load(content: bytes, name: str | None, work: Given, weight: Given) -> tuple[int, int]:
    context: Context | None = contexts.current()
    if context is None:
        return 0, codes.RT_CONTEXT_NULL
    for pointer, size in (work or (0, 0), weight or (0, 0)):
        if pointer and (memory.arena_of(pointer) is None or not size):
            return 0, strict.undefined(f"load with {size} bytes at {pointer:#x} as device memory", codes.GE_FAILURE)
    return models.load(
        content,
        context,
        name,
        site(),
        work=work[1] if work is not None and work[0] else None,
        weight=weight[1] if weight is not None and weight[0] else None,
    )


def content_of(path: str) -> bytes | int:
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason.report("E13026", path=path, reason=why)
        return codes.GE_EXEC_MODEL_PATH_INVALID
    return content


def bytes_at(address: int, size: int) -> bytes | int:
    """Bytes in host memory; from device memory the vendor's host code would crash."""
    if memory.arena_of(address) is not None:
        fact = f"a model at device address {address:#x}: with run mode host it must lie in host memory"
        return strict.undefined(fact, codes.GE_EXEC_MODEL_DATA_SIZE_INVALID)
    return ctypes.string_at(address, size)


def _sizes(content: bytes) -> tuple[int, int, int]:
    found = models.parse(content)
    return (0, 0, found) if isinstance(found, int) else (found.model.work_bytes, found.model.weight_bytes, 0)
