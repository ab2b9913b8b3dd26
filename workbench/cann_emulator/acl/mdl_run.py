"""Loads, datasets and execution of `acl.mdl` (pyacl.md §1.5, §2.5 "Model", §3.1, §5.1)."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

from workbench.cann_emulator.acl import (
    clock,
    errors,
    execution,
    handles,
    memory,
    models,
    profile,
    rt_device,
    rt_memory,
    streams,
)
from workbench.cann_emulator.acl.call import call, getters, site
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.models import ASYNCHRONOUS, SYNCHRONOUS
from workbench.cann_emulator.acl.top import DataBuffer, Dataset, TensorDesc, require_init

Source = str | tuple[int, int]
"""Of a model: a file, or pointer and size of host memory, whose bytes are not needed after the call."""


getters(globals(), "s", "Ir", device=True, load_from_file=lambda path: _load(path))
getters(globals(), "kk", "Ir", device=True, load_from_mem=lambda model, size: _load((model, size)))
getters(globals(), "skkkk", "Ir", device=True, load_from_file_with_mem=lambda path, *memory: _load(path, *memory))
getters(
    globals(),
    *("kkkkkk", "Ir"),
    device=True,
    load_from_mem_with_mem=lambda model, size, *memory: _load((model, size), *memory),
)
# bytes of work memory and of weight memory
getters(globals(), "s", "kkr", query_size=lambda path: _sizes(path))
getters(globals(), "kk", "kkr", query_size_from_mem=lambda model, size: _sizes((model, size)))


@call("I", "r")
def unload(model_id: int) -> None:
    entry = found(model_id)
    if rt_device.current() is not entry.context:
        errors.undefined(f"unload of model {model_id} in another context than the one that loaded it")
    models.unload(entry)


def _sizes(source: Source) -> tuple[int, int]:
    model = models.parse(_content(source)).model
    return model.work_bytes, model.weight_bytes


def found(model_id: int) -> models.LoadedModel:
    """A loaded model.

    Raises:
        Failed: an id that is unknown, unloaded, or of a library that is finalized.
    """
    require_init()
    entry = models.LOADED.get(model_id)
    if entry is None:
        text = f"Model id {model_id} is invalid: no model of this id is loaded."
        raise errors.refused(errors.GE_EXEC_MODEL_ID_INVALID, "E19999", message=text)
    return entry


def _load(source: Source, work: int = 0, work_size: int = 0, weight: int = 0, weight_size: int = 0) -> int:
    """The id of a new load. Device memory of the caller has pointer and size; what has a null pointer is allocated."""
    require_init()
    content, context, where = _content(source), rt_device.required(), site()
    runnable = models.parse(content)
    model = runnable.model
    parts = (("work", work, work_size, model.work_bytes), ("weight", weight, weight_size, model.weight_bytes))
    for part, pointer, size, needed in parts:
        if pointer and (memory.arena_of(pointer) is None or not size):
            raise errors.undefined(f"load with {size} bytes at {pointer:#x} as device memory", errors.GE_FAILURE)
        if pointer and size < needed:
            text = f"The {part} size of model {model.name} is {needed}, but the input size set by user is {size}"
            raise errors.refused(errors.GE_FAILURE, "E13025", reason=text)
    name = Path(source).stem if isinstance(source, str) else model.name
    entry = models.LoadedModel(model=model, runnable=runnable, context=context, site=where, name=name)
    for _, pointer, _, needed in parts:
        if pointer or not needed:
            continue
        block = rt_memory.grab(context, needed, "a loaded model", where)
        if block is None:
            models.give_back(entry)
            raise Failed(errors.GE_MEMORY_ALLOCATION)
        entry.blocks.append(block)
    models.LOADED[entry.id] = entry
    return entry.id


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


# --- datasets and execution ---


@call("", "k", device=False)
def create_dataset() -> int:
    return handles.give(Dataset(site=site()))


@call("k", "r", device=False)
def destroy_dataset(dataset: int) -> None:
    """Its tensor descriptions go with it; its data buffers and their memory do not."""
    for described in _dataset(dataset).described.values():
        handles.drop(described.handle)
    handles.drop(dataset)


@call("kk", "kr", device=False, echo=True)
def add_dataset_buffer(dataset: int, buffer: int) -> None:
    """The dataset again, and the code."""
    found = _dataset(dataset)
    found.buffers.append(handles.need(buffer, DataBuffer, "dataBuffer"))


getters(globals(), get_dataset_num_buffers=lambda dataset: len(handles.need(dataset, Dataset).buffers))


@call("kk", "k", device=False)
def get_dataset_buffer(dataset: int, index: int) -> int:
    buffers = handles.need(dataset, Dataset).buffers
    return buffers[index].handle if index < len(buffers) else 0


@call("kkk", "kr", device=False, echo=True)
def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    """The actual shape of an input; a copy is kept, and a null description takes it away again."""
    found = _dataset(dataset)
    if index >= len(found.buffers):
        raise Failed(errors.INVALID_PARAM)
    old = found.described.pop(index, None)
    if old is not None:
        handles.drop(old.handle)
    if tensor_desc:
        given = handles.look(tensor_desc, TensorDesc)
        if given is None:
            raise errors.undefined(f"{tensor_desc:#x} is no tensor description", errors.INVALID_PARAM)
        found.described[index] = replace(given, dims=list(given.dims), own=True, handle=0)


@call("kk", "k", device=False)
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """The description of an input as given, else 0."""
    described = handles.need(dataset, Dataset).described.get(index)
    if described is None:
        return 0
    return described.handle or handles.give(described)


@call("Ikk", "r")
def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run and wait, on a stream of the model's own. (The vendor's binding keeps the interpreter's lock meanwhile, which
    this one gives up.)"""
    entry = found(model_id)
    given, wanted = _dataset(inputs), _dataset(outputs)
    rt_device.required()
    device = entry.context.device
    stream_number = streams.STREAMS_PER_DEVICE + entry.id  # its own, behind those that a program can make
    run = execution.check(entry, given, wanted, SYNCHRONOUS)
    entry.called = SYNCHRONOUS
    code = streams.code_of(lambda: execution.perform(run, stream_number))
    clock.spend(run.latency_ns)
    if not code:
        end_ns = clock.now_ns()
        profile.done(device.index, stream_number, execution.KIND, end_ns - run.latency_ns, end_ns, run)
    device.busy_us += run.duration_ns / 1000
    rt_device.update_use()
    return code


@call("Ikkk", "r")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> None:
    """Queue on a stream; results are there after synchronising, not before."""
    entry = found(model_id)
    given, wanted = _dataset(inputs), _dataset(outputs)
    queue = streams.resolve(stream)
    run = execution.check(entry, given, wanted, ASYNCHRONOUS)
    entry.called = ASYNCHRONOUS
    busy = any(task.kind == execution.KIND for task in queue.tasks)
    task = streams.Task(
        work=lambda: execution.perform(run, queue.number),
        # behind another execution the host's launch costs no time
        duration_ns=run.duration_ns if busy else run.latency_ns,
        kind=execution.KIND,
        run=run,
    )
    streams.queue(queue, task)
    rt_device.update_use()


def _dataset(handle: int) -> Dataset:
    return handles.need(handle, Dataset, "dataset", "dataset")
