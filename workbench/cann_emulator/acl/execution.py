"""What `acl.mdl.execute` and `execute_async` check and do (pyacl.md §2.5 "Model" and "Gears", §3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl import clock, dumping, errors, handles, memory, models, rt_memory
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.models import LoadedModel
from workbench.cann_emulator.acl.top import DataBuffer, Dataset
from workbench.cann_emulator.kernel_values import KernelValues
from workbench.cann_emulator.om import Tensor, input_shapes

TOLERANCE = 64
"""Bytes that a buffer may be short of (pyacl.md §2.5)."""

KIND = "MODEL_EXECUTE"
"""Of its task; a profile shows its kernels in its place."""

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A checked execution: addresses and shapes as they were when it was launched.

    Attributes:
        duration_ns: on the stream; `latency_ns` has the host's launch in front of it, which a full queue hides.
    """

    entry: LoadedModel
    gear: int
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[DataBuffer, ...]
    shapes: tuple[tuple[int, ...], ...]
    duration_ns: int
    latency_ns: int


def check(entry: LoadedModel, inputs: Dataset, outputs: Dataset, call: str) -> Run:
    """A run ready to be done.

    Raises:
        Failed: what is given does not fit the model.
    """
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
    shapes = input_shapes(model, model.gears[chosen])
    needs = [prod(shape) * models.item_bytes(t.dtype) for shape, t in zip(shapes, model.inputs, strict=True)]
    if not model.gear_kind:
        for buffer, needed in zip(inputs.buffers, needs, strict=True):
            if buffer.size + TOLERANCE < needed:
                raise _too_small("input", buffer.size, needed)
    for index, buffer in enumerate(outputs.buffers):
        if not buffer.address:
            if call != models.SYNCHRONOUS:
                errors.present(dataBuffer=buffer.address)
        elif not model.gear_kind and buffer.size + TOLERANCE < (size := models.output_bytes(model, index)):
            raise _too_small("output", buffer.size, size)
    duration_ns, latency_ns = clock.execution_ns(model, chosen, entry.times_ns)
    return Run(
        entry=entry,
        gear=chosen,
        inputs=tuple((b.address, n) for b, n in zip(inputs.buffers, needs, strict=False)),
        outputs=tuple(outputs.buffers),
        shapes=shapes,
        duration_ns=duration_ns,
        latency_ns=latency_ns,
    )


def perform(run: Run, stream_number: int) -> None:
    """Read the inputs, compute, write the outputs.

    Raises:
        Failed: a fault on the device.
    """
    from workbench.cann_emulator.executable import ExecutionFailed

    model, home = run.entry.model, run.entry.context.device.arena
    feeds = {
        tensor.name: _read(home, address, needed, tensor, shape)
        for tensor, shape, (address, needed) in zip(model.inputs, run.shapes, run.inputs, strict=True)
    }
    dumped = dumping.on(run.entry) or dumping.checks_overflow()
    kernels: tuple[KernelValues, ...] = ()
    if clock.computes():
        shared = models.executable(run.entry)
        try:
            with run.entry.runnable.lock:
                if dumped:
                    results, kernels = shared.look(feeds, run.gear)
                else:
                    results = shared.run(feeds, run.gear)
        except ExecutionFailed as error:
            why = str(error).replace("\n", " ")
            raise errors.refused(errors.RT_AICORE_EXCEPTION, "EE1009", reason=why) from error
    else:
        results = _zeros(run)
    run.entry.executions += 1
    for index, (tensor, buffer) in enumerate(zip(model.outputs, run.outputs, strict=True)):
        _write(run, index, buffer, np.ascontiguousarray(results[tensor.name]))
    if dumped:
        dumping.executed(run.entry, run.gear, stream_number, feeds, kernels)


def _zeros(run: Run) -> dict[str, Array]:
    """What stands for outputs that are not computed, in their compiled shapes."""
    model, zeros = run.entry.model, {}
    for index, tensor in enumerate(model.outputs):
        shape = [max(size, 1) for size in models.output_shape(model, index, run.gear)]
        zeros[tensor.name] = np.zeros(shape, models.numpy_dtype(tensor.dtype))
    return zeros


def _gear(entry: LoadedModel, inputs: Dataset) -> int:
    """Index of the gear to run.

    Where none was set, or a wrong one, the vendor executes with an undefined selector; here it fails loudly (pyacl.md
    §7, [inferred]).
    """
    model = entry.model
    for index, gear in enumerate(model.gears):
        if inputs.gear == models.gear_key(model, gear):
            if entry.gear != index and errors.STRICT["on"]:
                errors.undefined("execute with a gear that is not the one set last on this model")
            return index
    chosen = "no gear was set on this dataset" if inputs.gear is None else f"{inputs.gear} is no gear of the model"
    why = f"{chosen}: call the acl.mdl.set_dynamic_* function of the model's kind first"
    raise errors.refused(errors.GE_FAILURE, "E13025", reason=why)


def _too_small(kind: str, given: int, needed: int) -> Failed:
    why = (
        f"The {kind} memory size set by the user is invalid.The provided {given} bytes of buffer size plus the "
        f"aligned {TOLERANCE} bytes is less than the tensor size {needed} bytes required by the model"
    )
    return errors.refused(errors.GE_FAILURE, "E13025", reason=why)


def _read(home: memory.Arena | None, address: int, needed: int, tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """A view on memory of the model's device."""
    arena = memory.arena_of(address)
    block = memory.block_at(arena, address) if arena is not None and arena is home else None
    if arena is None or block is None:
        raise _fault(f"input {tensor.name}", address)
    # A buffer that is up to 64 bytes short reads what lies behind it, as on the device
    inside = min(needed, block.address + block.extent - address)
    memory.reach(arena, address, inside, False)
    offset = address - block.address
    values = block.content[offset : offset + inside]
    if inside < needed:
        values = np.concatenate([values, np.full(needed - inside, memory.FRESH, np.uint8)])
    elif address % 16:
        values = values.copy()
    return values.view(models.numpy_dtype(tensor.dtype)).reshape(shape)


def _write(run: Run, index: int, buffer: DataBuffer, values: Array) -> None:
    """Put one result where it belongs; an output buffer made as (0, 0) gets memory first."""
    if not buffer.address:
        made = rt_memory.grab(run.entry.context, max(values.nbytes, 1), "malloc", run.entry.site)
        if made is None:
            raise Failed(errors.GE_MEMORY_ALLOCATION)
        buffer.address, buffer.size = made.address, values.nbytes
    what = f"output {run.entry.model.outputs[index].name}"
    arena = memory.arena_of(buffer.address)
    block = memory.block_at(arena, buffer.address) if arena is not None else None
    if arena is None or block is None or arena is not run.entry.context.device.arena:
        raise _fault(what, buffer.address)
    room = min(values.nbytes, block.address + block.extent - buffer.address)
    private = memory.reach(arena, buffer.address, room, True)
    if private is None or room < values.nbytes - TOLERANCE:
        raise _fault(what, buffer.address)
    memory.move(private, values.ctypes.data, room)


def _fault(what: str, address: int) -> Failed:
    """[inferred] A device that meets a host or freed address stops with an AI Core exception."""
    kind = "no device memory" if memory.arena_of(address) is None else "no live device memory of the model's device"
    return errors.undefined(f"the {what} is at {address:#x}, which is {kind}", errors.RT_AICORE_EXCEPTION)
