"""Datasets and execution of `acl.mdl` (pyacl.md §1.5, §3.1, §5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from workbench.cann_emulator.acl import (
    codes,
    contexts,
    execution,
    handles,
    host_clock,
    mdl_load,
    profiling,
    streams,
    strict,
    use,
)
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.acl.models import ASYNCHRONOUS, SYNCHRONOUS
from workbench.cann_emulator.acl.top_data import DataBuffer, Dataset, TensorDesc

_STREAM_TIMEOUT = 0


@dataclass(slots=True, kw_only=True, eq=False)
class _ExecConfig(Made):
    KIND: ClassVar[str] = "execution configurations"
    values: dict[int, int] = field(default_factory=dict)


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


@call("k", "k", device=False)
def get_dataset_num_buffers(dataset: int) -> int:
    return len(handles.need(dataset, Dataset).buffers)


@call("kk", "k", device=False)
def get_dataset_buffer(dataset: int, index: int) -> int:
    buffers = handles.need(dataset, Dataset).buffers
    return buffers[index].handle if index < len(buffers) else 0


@call("kkk", "kr", device=False, echo=True)
def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    """The actual shape of an input; a copy is kept, and a null description takes it away again."""
    found = _dataset(dataset)
    if index >= len(found.buffers):
        raise Failed(codes.INVALID_PARAM)
    old = found.described.pop(index, None)
    if old is not None:
        handles.drop(old.handle)
    if tensor_desc:
        given = handles.look(tensor_desc, TensorDesc)
        if given is None:
            raise strict.undefined(f"{tensor_desc:#x} is no tensor description", codes.INVALID_PARAM)
        found.described[index] = replace(given, dims=list(given.dims), dataset=True, handle=0)


@call("kk", "k", device=False)
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """The description of an input as given, or of an output of a shape-range model after execution; else 0."""
    described = handles.need(dataset, Dataset).described.get(index)
    if described is None:
        return 0
    return described.handle or handles.give(described)


@call("Ikk", "r")
def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run and wait, on a stream of the model's own. (The vendor's binding keeps the interpreter's lock meanwhile, which
    this one gives up.)"""
    return _execute(model_id, inputs, outputs)


@call("Ikkkk", "r")
def execute_v2(model_id: int, inputs: int, outputs: int, stream: int, handle: int) -> int:
    """`execute` with time-outs in milliseconds from a configuration, measured on the virtual clock."""
    config = handles.need(handle, _ExecConfig, "handle")
    return _execute(model_id, inputs, outputs, config.values.get(_STREAM_TIMEOUT, -1))


@call("Ikkk", "r")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> None:
    """Queue on a stream; results are there after synchronising, not before."""
    entry = mdl_load.found(model_id)
    given, wanted = _dataset(inputs), _dataset(outputs)
    queue = streams.resolve(stream)
    with host_clock.STANDING:  # the first time of a gear it computes how long the device needs
        run = execution.check(entry, given, wanted, ASYNCHRONOUS, queue.number)
    entry.called = ASYNCHRONOUS
    busy = any(task.what == ASYNCHRONOUS for task in queue.tasks)
    streams.queue(queue, execution.task(run, busy))
    use.update(contexts.required().device)


@call("", "k", device=False)
def create_exec_config_handle() -> int:
    return handles.give(_ExecConfig(site=site()))


@call("k", "r", device=False)
def destroy_exec_config_handle(handle: int) -> None:
    handles.need(handle, _ExecConfig)
    handles.drop(handle)


@call("kkI", "r", device=False)
def set_exec_config_opt(handle: int, attribute: int, value: int) -> None:
    """0 is the time-out of stream synchronisation in ms, 1 that of events [inferred: order of the C enum]."""
    handles.need(handle, _ExecConfig).values[attribute] = value


def _execute(model_id: int, inputs: int, outputs: int, timeout_ms: int = -1) -> int:
    entry = mdl_load.found(model_id)
    given, wanted = _dataset(inputs), _dataset(outputs)
    contexts.required()
    device = entry.context.device
    stream_number = streams.STREAMS_PER_DEVICE + entry.id  # its own, behind those that a program can make
    with host_clock.STANDING:
        run = execution.check(entry, given, wanted, SYNCHRONOUS, stream_number)
        entry.called = SYNCHRONOUS
        if timeout_ms >= 0 and run.latency_ns > timeout_ms * 1_000_000:
            host_clock.spend(timeout_ms * 1_000_000)
            raise Failed(codes.RT_STREAM_SYNC_TIMEOUT)
        code = streams.code_of(lambda: execution.perform(run))
        host_clock.spend(run.latency_ns)
        if not code:
            end_ns, what = host_clock.now_ns(), execution.profiled(run)
            profiling.done(device.index, stream_number, execution.MODEL, end_ns - run.latency_ns, end_ns, what)
    device.busy_us += run.duration_ns / 1000
    use.update(device)
    return code


def _dataset(handle: int) -> Dataset:
    return handles.need(handle, Dataset, "dataset", "dataset")
