"""Load and unload of `acl.mdl` (pyacl.md §1.5, §2.5 "Model")."""

from __future__ import annotations

import ctypes
from pathlib import Path

from workbench.cann_emulator.acl import codes, contexts, memory, models, reason, strict
from workbench.cann_emulator.acl import top_process as process
from workbench.cann_emulator.acl.call import call, site

Given = tuple[int, int]
"""Device memory of the caller: pointer and size; a null pointer leaves that part to the library."""
_NOTHING = (0, 0)


@call("s", "Ir")
def load_from_file(path: str) -> int:
    return _load_file(path, _NOTHING, _NOTHING)


@call("kk", "Ir")
def load_from_mem(model: int, size: int) -> int:
    """From host memory, whose bytes are not needed after the call."""
    return _load_bytes(model, size, _NOTHING, _NOTHING)


@call("skkkk", "Ir")
def load_from_file_with_mem(path: str, work: int, work_size: int, weight: int, weight_size: int) -> int:
    return _load_file(path, (work, work_size), (weight, weight_size))


@call("kkkkkk", "Ir")
def load_from_mem_with_mem(model: int, size: int, work: int, work_size: int, weight: int, weight_size: int) -> int:
    return _load_bytes(model, size, (work, work_size), (weight, weight_size))


@call("I", "r")
def unload(model_id: int) -> None:
    entry = found(model_id)
    if contexts.current() is not entry.context:
        strict.undefined(f"unload of model {model_id} in another context than the one that loaded it")
    models.unload(entry)


@call("s", "kkr", device=False)
def query_size(path: str) -> tuple[int, int]:
    """Bytes of work memory and of weight memory."""
    return _sizes(_content_of(path))


@call("kk", "kkr", device=False)
def query_size_from_mem(model: int, size: int) -> tuple[int, int]:
    return _sizes(_bytes_at(model, size))


def found(model_id: int) -> models.LoadedModel:
    """A loaded model.

    Raises:
        Failed: an id that is unknown, unloaded, or of a library that is finalized.
    """
    process.require(codes.GE_EXEC_NOT_INIT)
    entry = models.LOADED.get(model_id)
    if entry is None:
        text = f"Model id {model_id} is invalid: no model of this id is loaded."
        raise reason.refused(codes.GE_EXEC_MODEL_ID_INVALID, "E19999", message=text)
    return entry


def _load_file(path: str, work: Given, weight: Given) -> int:
    process.require(codes.GE_EXEC_NOT_INIT)
    return _load(_content_of(path), Path(path).stem, work, weight)


def _load_bytes(model: int, size: int, work: Given, weight: Given) -> int:
    reason.present(model=model and size)
    process.require(codes.GE_EXEC_NOT_INIT)
    return _load(_bytes_at(model, size), None, work, weight)


def _load(content: bytes, name: str | None, work: Given, weight: Given) -> int:
    context = contexts.required()
    for pointer, size in (work, weight):
        if pointer and (memory.arena_of(pointer) is None or not size):
            raise strict.undefined(f"load with {size} bytes at {pointer:#x} as device memory", codes.GE_FAILURE)
    brought = {part: size for part, (pointer, size) in (("work", work), ("weight", weight)) if pointer}
    return models.load(content, context, name, site(), brought)


def _content_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise reason.refused(codes.GE_EXEC_MODEL_PATH_INVALID, "E13026", path=path, reason=why) from error


def _bytes_at(address: int, size: int) -> bytes:
    """Bytes in host memory; from device memory the vendor's host code would crash."""
    if memory.arena_of(address) is not None:
        fact = f"a model at device address {address:#x}: with run mode host it must lie in host memory"
        raise strict.undefined(fact, codes.GE_EXEC_MODEL_DATA_SIZE_INVALID)
    return ctypes.string_at(address, size)


def _sizes(content: bytes) -> tuple[int, int]:
    model = models.parse(content).model
    return model.work_bytes, model.weight_bytes
