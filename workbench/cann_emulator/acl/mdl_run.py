"""Datasets and execution of `acl.mdl` (pyacl.md §1.5, §3.1, §5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.cann_emulator.acl import (
    codes,
    contexts,
    execution,
    handles,
    host_clock,
    leaks,
    mdl_load,
    models,
    profiling,
    reason,
    streams,
    strict,
    use,
)
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.datasets import DataBuffer, Dataset, TensorDesc
from workbench.cann_emulator.acl.models import ASYNCHRONOUS, SYNCHRONOUS


@call("", "k", device=False)
def create_dataset() -> int:
    dataset = Dataset(site=site())
    dataset.handle = handles.give(dataset)
    return dataset.handle


@call("k", "r", device=False)
def destroy_dataset(dataset: int) -> int:
    """Its tensor descriptions go with it; its data buffers and their memory do not."""
    found = _dataset(dataset)
    if found is None:
        return codes.INVALID_PARAM
    for described in found.described.values():
        if described.handle:
            handles.drop(described.handle)
    handles.drop(dataset)
    return 0


@call("kk", "kr", device=False)
def add_dataset_buffer(dataset: int, buffer: int) -> tuple[int, int]:
    """The dataset again, and the code."""
    found, added = _dataset(dataset), handles.look(buffer, DataBuffer)
    if found is None:
        return dataset, codes.INVALID_PARAM
    if added is None:
        reason.report("EH0002", param="dataBuffer")
        return dataset, codes.INVALID_PARAM
    found.buffers.append(added)
    return dataset, 0


@call("k", "k", device=False)
def get_dataset_num_buffers(dataset: int) -> int:
    found = handles.look(dataset, Dataset)
    return len(found.buffers) if found is not None else 0


@call("kk", "k", device=False)
def get_dataset_buffer(dataset: int, index: int) -> int:
    found = handles.look(dataset, Dataset)
    return found.buffers[index].handle if found is not None and index < len(found.buffers) else 0


@call("kkk", "kr", device=False)
def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> tuple[int, int]:
    """The actual shape of an input; a copy is kept, and a null description takes it away again."""
    found = _dataset(dataset)
    if found is None or index >= len(found.buffers):
        return dataset, codes.INVALID_PARAM
    old = found.described.pop(index, None)
    if old is not None and old.handle:
        handles.drop(old.handle)
    if tensor_desc:
        given = handles.look(tensor_desc, TensorDesc)
        if given is None:
            return dataset, strict.undefined(f"{tensor_desc:#x} is no tensor description", codes.INVALID_PARAM)
        found.described[index] = TensorDesc(
            dtype=given.dtype,
            dims=list(given.dims),
            format=given.format,
            site=given.site,
            dataset=True,
        )
    return dataset, 0


@call("kk", "k", device=False)
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """The description of an input as given, or of an output of a shape-range model after execution; else 0."""
    found = handles.look(dataset, Dataset)
    described = found.described.get(index) if found is not None else None
    if described is None:
        return 0
    if not described.handle:
        described.handle = handles.give(described)
    return described.handle


@call("Ikk", "r")
def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run and wait, on a stream of the model's own. The interpreter's lock is held, as the vendor's binding does;
    `synchronize_*` and `process_report` give it up."""
    return _execute(model_id, inputs, outputs)


@call("Ikkkk", "r")
def execute_v2(model_id: int, inputs: int, outputs: int, stream: int, handle: int) -> int:
    """`execute` with time-outs in milliseconds from a configuration, measured on the virtual clock."""
    config = handles.look(handle, _ExecConfig)
    if config is None:
        reason.report("EH0002", param="handle")
        return codes.INVALID_PARAM
    return _execute(model_id, inputs, outputs, config.values.get(_STREAM_TIMEOUT, -1))


@call("Ikkk", "r")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> int:
    """Queue on a stream; results are there after synchronising, not before."""
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return code
    given, wanted = _dataset(inputs), _dataset(outputs)
    if given is None or wanted is None:
        return codes.INVALID_PARAM
    context = contexts.current()
    if context is None:
        return codes.RT_CONTEXT_NULL
    queue, code = streams.resolve(stream, context)
    if queue is None:
        return code
    with host_clock.STANDING:  # the first time of a gear it computes how long the device needs
        run = execution.check(entry, given, wanted, ASYNCHRONOUS, queue.number)
    if isinstance(run, int):
        return run
    entry.called = ASYNCHRONOUS
    busy = any(task.what == ASYNCHRONOUS for task in queue.tasks)
    streams.queue(queue, execution.task(run, busy))
    use.update(context.device)
    return 0


@call("", "k", device=False)
def create_exec_config_handle() -> int:
    return handles.give(_ExecConfig(site=site()))


@call("k", "r", device=False)
def destroy_exec_config_handle(handle: int) -> int:
    if handles.look(handle, _ExecConfig) is None:
        return codes.INVALID_PARAM
    handles.drop(handle)
    return 0


@call("kkI", "r", device=False)
def set_exec_config_opt(handle: int, attribute: int, value: int) -> int:
    """0 is the time-out of stream synchronisation in ms, 1 that of events [inferred: order of the C enum]."""
    config = handles.look(handle, _ExecConfig)
    if config is None:
        return codes.INVALID_PARAM
    config.values[attribute] = value
    return 0


_STREAM_TIMEOUT = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ExecConfig:
    site: tuple[str, int]
    values: dict[int, int] = field(default_factory=dict)


def _execute(model_id: int, inputs: int, outputs: int, timeout_ms: int = -1) -> int:
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return code
    given, wanted = _dataset(inputs), _dataset(outputs)
    if given is None or wanted is None:
        return codes.INVALID_PARAM
    if contexts.current() is None:
        return codes.RT_CONTEXT_NULL
    device = entry.context.device
    with host_clock.STANDING:
        run = execution.check(entry, given, wanted, SYNCHRONOUS, models_stream(entry))
        if isinstance(run, int):
            return run
        entry.called = SYNCHRONOUS
        if timeout_ms >= 0 and run.latency_ns > timeout_ms * 1_000_000:
            host_clock.spend(timeout_ms * 1_000_000)
            return codes.RT_STREAM_SYNC_TIMEOUT
        code = execution.perform(run, held=True)
        host_clock.spend(run.latency_ns)
        if not code:
            end_ns, what = host_clock.now_ns(), execution.profiled(run)
            began_ns = end_ns - run.latency_ns
            profiling.done(device.index, run.stream_number, execution.MODEL, began_ns, end_ns, what)
    device.busy_us += run.duration_ns / 1000
    use.update(device)
    return code


def models_stream(entry: models.LoadedModel) -> int:
    """Number of the stream that a model runs on when the call waits; behind those a program can make."""
    return streams.STREAMS_PER_DEVICE + entry.id


def _dataset(handle: int) -> Dataset | None:
    found = handles.look(handle, Dataset)
    if found is None:
        if handle:
            strict.undefined(f"{handle:#x} is no live dataset", codes.INVALID_PARAM)
        reason.report("EH0002", param="dataset")
    return found


leaks.watch(_ExecConfig, "execution configurations")
