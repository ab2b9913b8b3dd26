"""The gear of a run, and what `acl.mdl.execute` and `execute_async` check and do (pyacl.md §2.5 "Model" and "Gears",
§3.3, §5.1, §7)."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl import (
    clock,
    descriptions,
    dumping,
    errors,
    handles,
    memory,
    models,
    profile,
    rt_device,
    rt_memory,
    streams,
)
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.descriptions import DataBuffer, Dataset
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.models import LoadedModel, item_bytes
from workbench.cann_emulator.dump_file import KernelValues
from workbench.cann_emulator.om import Tensor, input_shapes

_MOST_DIMS = 128
TOLERANCE = 64
"""Bytes that a buffer may be short of (pyacl.md §2.5)."""
KIND = "MODEL_EXECUTE"
"""Of its task; a profile shows its kernels in its place."""
_STORED = {"bfloat16": "uint16"}
"""What numpy has no type for travels as words."""

Array = npt.NDArray[np.generic]


class Run(NamedTuple):
    """A checked execution: addresses as they were when it was launched."""

    entry: LoadedModel
    gear: int
    inputs: tuple[tuple[int, int], ...]  # address and bytes of each
    outputs: tuple[DataBuffer, ...]
    duration_ns: int  # on the stream; `latency_ns` has the host's launch in front of it, which a full queue hides
    latency_ns: int


# --- the gear of a run (pyacl.md §7, §2.5 "Gears") ---


@call("mdl", "IkkK", "r")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> None:
    _set_gear(model_id, dataset, index, (batch,), "dynamic_batch_size")


@call("mdl", "IkkKK", "r")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, height: int, width: int) -> None:
    _set_gear(model_id, dataset, index, (height, width), "dynamic_image_size")


@call("mdl", "IkkO", "r")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, dims: dict[str, Any]) -> None:
    """`dims` holds all axes of all inputs, fixed ones included, the gear input excluded."""
    if not isinstance(dims, dict):
        raise TypeError("argument 4 is not dict")
    count, sizes = dims.get("dimCount"), dims.get("dims")
    if not isinstance(count, int) or not isinstance(sizes, list):
        raise TypeError("The dims of parameter 4 is not a list.")
    if not all(isinstance(size, int) for size in sizes) or count > len(sizes):
        raise TypeError("the dims of fourth parameter is not list of int")
    if handles.look(dataset, Dataset) is None or not 0 < count <= _MOST_DIMS:
        raise Failed(errors.INVALID_PARAM)
    model = models.found(model_id).model
    if model.gear_kind != "dynamic_dims":
        raise Failed(errors.GE_DYNAMIC_BATCH_SIZE_INVALID)
    axes, given = [size for tensor in model.inputs for size in tensor.shape], sizes[:count]
    if len(given) != len(axes) or any(axis not in (-1, size) for axis, size in zip(axes, given, strict=True)):
        text = f"dims {given} do not fit the axes {axes} of the model's inputs"
        raise errors.refused(errors.GE_DYNAMIC_INPUT_LENGTH_INVALID, "E19999", message=text)
    chosen = tuple(size for axis, size in zip(axes, given, strict=True) if axis == -1)
    _set_gear(model_id, dataset, index, chosen, "dynamic_dims")


def _set_gear(model_id: int, dataset: int, index: int, chosen: tuple[int, ...], kind: str) -> None:
    """Choose a gear for a dataset and a model; the value reaches the dataset even when the model refuses it. It is
    written into the gear input: int32, or int64 where the buffer has 8 bytes for each."""
    found = handles.need(dataset, Dataset, "dataset")
    if any(value == 0 for value in chosen):
        raise errors.invalid(kind, 0, "it must be greater than zero")
    if index >= len(found.buffers) or not found.buffers[index].address:
        raise errors.invalid("index", index, "the dataset has no memory there")
    entry, buffer = models.found(model_id), found.buffers[index]
    if kind != "dynamic_dims":
        found.gear = chosen
    if buffer.size < 4 * len(chosen):
        raise Failed(errors.GE_DYNAMIC_INPUT_LENGTH_INVALID)
    keys = descriptions.gear_keys(entry.model, kind)
    if chosen not in keys:
        text = f"{list(chosen)} is none of the gears of model {entry.name}"
        raise errors.refused(errors.GE_DYNAMIC_BATCH_SIZE_INVALID, "E19999", message=text)
    values = np.array(chosen, np.int64 if buffer.size >= 8 * len(chosen) else np.int32)
    private = memory.reach(buffer.address, values.nbytes, True)
    if private is None:
        raise Failed(errors.RT_DRV_INTERNAL_ERROR)
    memory.move(private, values.ctypes.data, values.nbytes)
    found.gear, entry.gear = chosen, keys.index(chosen)


def _gear(entry: LoadedModel, inputs: Dataset) -> int:
    """Index of the gear to run.

    Where none was set, or a wrong one, the vendor executes with an undefined selector; here it fails loudly (pyacl.md
    §7, [inferred]).
    """
    for index, gear in enumerate(entry.model.gears):
        if inputs.gear == descriptions.gear_key(entry.model, gear):
            if entry.gear != index and errors.STRICT["on"]:
                errors.undefined("execute with a gear that is not the one set last on this model")
            return index
    chosen = "no gear was set on this dataset" if inputs.gear is None else f"{inputs.gear} is no gear of the model"
    why = f"{chosen}: call the acl.mdl.set_dynamic_* function of the model's kind first"
    raise errors.refused(errors.GE_FAILURE, "E13025", reason=why)


# --- execution ---


@call("mdl", "Ikk", "r")
def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run and wait, on a stream of the model's own. (The vendor's binding keeps the interpreter's lock meanwhile, which
    this one gives up.)"""
    entry, given, wanted = models.found(model_id), descriptions.dataset_of(inputs), descriptions.dataset_of(outputs)
    rt_device.required()
    device = entry.context.device
    stream_number = streams.STREAMS_PER_DEVICE + model_id  # its own, behind those that a program can make
    run = _checked(entry, given, wanted, "execute")
    code = streams.code_of(lambda: _perform(run, stream_number))
    clock.spend(run.latency_ns)
    if not code:
        end_ns = clock.now_ns()
        profile.done(device.index, stream_number, KIND, end_ns - run.latency_ns, end_ns, run)
    device.busy_us += run.duration_ns / 1000
    rt_device.update_use()
    return code


@call("mdl", "Ikkk", "r")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> None:
    """Queue on a stream; results are there after synchronising, not before."""
    entry, given, wanted = models.found(model_id), descriptions.dataset_of(inputs), descriptions.dataset_of(outputs)
    queue = streams.resolve(stream)
    run = _checked(entry, given, wanted, "execute_async")
    # behind another execution the host's launch costs no time
    duration_ns = run.duration_ns if any(task.kind == KIND for task in queue.tasks) else run.latency_ns
    work = streams.Task(work=lambda: _perform(run, queue.number), duration_ns=duration_ns, kind=KIND, run=run)
    streams.queue(queue, work)
    rt_device.update_use()


def _checked(entry: LoadedModel, inputs: Dataset, outputs: Dataset, call: str) -> Run:
    """A run ready to be done."""
    model = entry.model
    if entry.called and entry.called != call:
        text = f"not support mix execute: the model was run with {entry.called} before"
        raise errors.refused(errors.GE_FAILURE, "E19999", message=text)
    wanted = len(model.inputs) + bool(model.gear_kind)
    for given, needed in ((len(inputs.buffers), wanted), (len(outputs.buffers), len(model.outputs))):
        if given != needed:
            text = "The number of inputs or outputs provided by the user is inconsistent with that of the model"
            why = f"{text}: {given} given, {needed} needed"
            raise errors.refused(errors.GE_FAILURE, "E13025", reason=why)
    for buffer in (*inputs.buffers, *outputs.buffers):
        if handles.look(buffer.handle, DataBuffer) is None:
            raise errors.undefined("execute with a data buffer that was destroyed", errors.INVALID_PARAM)
        errors.present(dataBuffer=buffer.address or not buffer.size)
    chosen = _gear(entry, inputs) if model.gear_kind else 0
    shapes = zip(input_shapes(model, model.gears[chosen]), model.inputs, strict=True)
    places = [(b, prod(shape) * item_bytes(t.dtype)) for b, (shape, t) in zip(inputs.buffers, shapes, strict=False)]
    for buffer in outputs.buffers if call != "execute" else ():
        errors.present(dataBuffer=buffer.address)
    wanted_bytes = [(b, descriptions.output_bytes(model, i)) for i, b in enumerate(outputs.buffers) if b.address]
    sides = [("input", *place) for place in places] + [("output", *place) for place in wanted_bytes]
    for kind, buffer, needed in sides if not model.gear_kind else ():
        if buffer.size + TOLERANCE < needed:
            why = (
                f"The {kind} memory size set by the user is invalid.The provided {buffer.size} bytes of buffer size "
                f"plus the aligned {TOLERANCE} bytes is less than the tensor size {needed} bytes required by the model"
            )
            raise errors.refused(errors.GE_FAILURE, "E13025", reason=why)
    if chosen not in entry.times_ns:
        entry.times_ns[chosen] = clock.execution_ns(model, chosen)
    entry.called = call
    at = tuple((buffer.address, needed) for buffer, needed in places)
    return Run(entry, chosen, at, tuple(outputs.buffers), *entry.times_ns[chosen])


def _perform(run: Run, stream_number: int) -> None:
    """Read the inputs, compute, write the outputs."""
    from workbench.cann_emulator.executable import ExecutionFailed

    model = run.entry.model
    shapes = input_shapes(model, model.gears[run.gear])
    given = zip(model.inputs, shapes, run.inputs, strict=True)
    feeds = {tensor.name: _read(run, tensor, shape, *place) for tensor, shape, place in given}
    dumped = dumping.on(run.entry)
    kernels: tuple[KernelValues, ...] = ()
    if clock.computes():
        shared = models.executable(run.entry)
        try:
            with run.entry.runnable.lock:
                results, kernels = shared.look(feeds, run.gear) if dumped else (shared.run(feeds, run.gear), ())
        except ExecutionFailed as error:
            why = str(error).replace("\n", " ")
            raise errors.refused(errors.RT_AICORE_EXCEPTION, "EE1009", reason=why) from error
    else:  # zeros in the compiled shapes stand for what is not computed
        results = {
            t.name: np.zeros([max(size, 1) for size in descriptions.output_shape(model, index, run.gear)], _dtype(t))
            for index, t in enumerate(model.outputs)
        }
    run.entry.executions += 1
    for tensor, buffer in zip(model.outputs, run.outputs, strict=True):
        _write(run, tensor, buffer, np.ascontiguousarray(results[tensor.name]))
    if dumped:
        dumping.executed(run.entry, run.gear, stream_number, feeds, kernels)


def _dtype(tensor: Tensor) -> npt.DTypeLike:
    return np.dtype(_STORED.get(tensor.dtype, tensor.dtype))


def _block(run: Run, what: str, address: int) -> memory.Block:
    """Memory of the model's device; [inferred] a device that meets a host or freed address stops with an AI Core
    exception."""
    arena, block = memory.arena_of(address), memory.block_at(address)
    if block is None or arena is not run.entry.context.device.arena:
        kind = "no device memory" if arena is None else "no live device memory of the model's device"
        raise errors.undefined(f"the {what} is at {address:#x}, which is {kind}", errors.RT_AICORE_EXCEPTION)
    return block


def _read(run: Run, tensor: Tensor, shape: tuple[int, ...], address: int, needed: int) -> Array:
    block = _block(run, f"input {tensor.name}", address)
    # A buffer that is up to 64 bytes short reads what lies behind it, as on the device
    inside = min(needed, block.address + block.extent - address)
    memory.reach(address, inside, False)
    offset = address - block.address
    values = block.content[offset : offset + inside]
    if inside < needed:
        values = np.concatenate([values, np.full(needed - inside, memory.FRESH, np.uint8)])
    elif address % 16:
        values = values.copy()
    return values.view(_dtype(tensor)).reshape(shape)


def _write(run: Run, tensor: Tensor, buffer: DataBuffer, values: Array) -> None:
    """Put one result where it belongs; an output buffer made as (0, 0) gets memory first."""
    if not buffer.address:
        made = rt_memory.grab(run.entry.context, max(values.nbytes, 1), "malloc")
        if made is None:
            raise Failed(errors.GE_MEMORY_ALLOCATION)
        buffer.address, buffer.size = made.address, values.nbytes
    block = _block(run, f"output {tensor.name}", buffer.address)
    room = min(values.nbytes, block.address + block.extent - buffer.address)
    private = memory.reach(buffer.address, room, True)
    if private is None or room < values.nbytes - TOLERANCE:
        raise errors.undefined(f"the output {tensor.name} does not fit its memory", errors.RT_AICORE_EXCEPTION)
    memory.move(private, values.ctypes.data, room)
