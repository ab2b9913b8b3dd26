"""Compiled files on a device through pyACL: `open_session`.

All files are loaded when the session opens, into one context with one created stream, and every buffer, dataset and
event is made then. A call only copies and executes:

    event ─ inputs to the device ─ event ─ execute_async ─ event ─ outputs to the host ─ event ─ one synchronize

Only `execute_async` is used. The synchronous `execute` runs on a stream of the model's own, which no event of ours can
time, and one loaded model takes one of the two calls, never both (pyacl.md §5.1, §2.5).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from workbench.targets.ascend.acl.calls import UndoStack, checked, do, doubt, library, read, take
from workbench.targets.ascend.acl.dtypes import from_device, to_device
from workbench.targets.ascend.acl.loaded_model import LoadedModel, Plan, load
from workbench.targets.ascend.acl.process import check_process, enter, forked, leave
from workbench.targets.ascend.fitting import Shape, Turn, cut, extent, place, rows_of, turns
from workbench.targets.ascend.interface import INTERFACE, Interface, Port, read_interface
from workbench.targets.ascend.npu_smi import soc_name, watched
from workbench.targets.base import Array, DeviceTimes, Feeds
from workbench.targets.feeds import FileRows, Input, check_feeds
from workbench.values.artifact import Artifact, CompiledFile
from workbench.values.device_use import DeviceReading
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError
from workbench.values.modelled_times.statement import CallCosts, TimingModel, Work, summed

_log = logging.getLogger(__name__)

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
_TIME_STAMPS = 8
"""Flag of create_event_with_flag: events that tell times, do not order streams, and do not count against a limit."""
TIMEOUT_MS = 300_000
"""How long one execution may take before the device counts as hung (507046)."""


def open_session(directory: Path, artifact: Artifact, *, device_id: int = 0) -> AscendSession:
    """Load an artifact's files onto a device, all of them: a service may form any batch that was compiled.

    Args:
        device_id: as pyACL counts inside this process, after ASCEND_RT_VISIBLE_DEVICES.

    Raises:
        MeasureError: a file is missing, truncated, for another chip, or pyACL refuses it.
        ToolchainError: no pyACL, no device, or no right to use it.
    """
    compiled = _complete_files(directory, artifact)
    try:
        interface = read_interface(directory)
    except (OSError, ValueError) as error:
        raise MeasureError(f"{directory / INTERFACE}: pyACL cannot load the files beside it: {error}") from error
    check_process()
    lock = threading.RLock()
    undo = UndoStack()
    number = enter(device_id, partial(_release, undo, lock))
    undo.add(partial(leave, number))
    try:
        _check_soc(artifact)
        context = take("rt.create_context", device_id)
        undo.add(partial(do, "rt.destroy_context", context))
        stream = take("rt.create_stream")
        undo.add(partial(do, "rt.destroy_stream", stream))
        events = [_event(undo) for _ in range(4)]
        models = []
        for file in compiled:
            model = load(directory / file.file, interface, undo)
            _check_shapes(model, file)
            models.append(model)
        # what is added last is released first: the context, in whichever thread, and then nothing may still run
        undo.add(partial(_settle, stream))
        undo.add(partial(do, "rt.set_context", context))
        return AscendSession(
            interface=interface,
            models=models,
            device_id=device_id,
            context=context,
            stream=stream,
            events=events,
            lock=lock,
            undo=undo,
        )
    except BaseException:  # what failed first is what is reported
        refusal = undo.release()
        if refusal is not None:
            _log.warning("while a session that could not be opened was released: %s", refusal)
        raise


class AscendSession:
    """Loaded models on one device; see `workbench.targets.base.Session` and `DeviceSession`.

    Equal feeds give equal outputs. Outputs have the types of the ONNX model, whatever the compiled one holds. Calls
    from several threads are served one after another, each with the session's context made current in its thread.
    """

    def __init__(
        self,
        *,
        interface: Interface,
        models: Sequence[LoadedModel],
        device_id: int,
        context: int,
        stream: int,
        events: Sequence[int],
        lock: threading.RLock,
        undo: UndoStack,
    ) -> None:
        self._interface = interface
        self._models = models
        self._plans = {shape: plan for model in models for shape, plan in model.plans.items()}
        self._outputs = tuple(_output_port(port, index, self._plans) for index, port in enumerate(interface.outputs))
        self._inputs = {port.name: _expected(port) for port in interface.inputs}
        self._rows = FileRows(interface.inputs, self._outputs)
        self._device_id, self._context, self._stream, self._events = device_id, context, stream, events
        self._lock, self._undo = lock, undo
        self._earlier_turns: DeviceTimes | None = None
        self._last: tuple[Turn, ...] = ()
        self._set_context = checked("rt.set_context")
        self._record = checked("rt.record_event")
        self._copy = checked("rt.memcpy_async")
        self._launch = checked("mdl.execute_async")
        self._wait = checked("rt.synchronize_stream_with_timeout")

    def run(self, feeds: Feeds) -> dict[str, Array]:
        check_process()
        with self._lock:
            self._check_open()
            check_feeds(feeds, self._inputs)
            wanted = extent(feeds, self._interface)
            served = turns(tuple(self._plans), wanted)
            self._set_context(self._context)
            self._earlier_turns = None
            spent = DeviceTimes(host_to_device_ms=0.0, execute_ms=0.0, device_to_host_ms=0.0)
            parts: list[dict[str, Array]] = []
            for turn in served:
                if parts:  # the events are about to be recorded again
                    spent = _sum(spent, self._read_events())
                parts.append(self._execute(self._plans[turn.shape], turn, feeds, wanted.length))
            self._earlier_turns, self._last = spent, served
        return self._rows.joined(parts)

    def times(self) -> DeviceTimes:
        """Of the last `run`: copies and execution apart, by events on the stream; several turns added up."""
        check_process()
        with self._lock:
            return _sum(self._after_a_call(), self._read_events())

    def costs(self) -> tuple[TimingModel, CallCosts] | None:
        """What the last `run` asked of an emulated device; see `workbench.targets.base.StatesCosts`."""
        check_process()
        with self._lock:
            self._after_a_call()
            return _stated_costs([self._plans[turn.shape] for turn in self._last])

    def device_memory_bytes(self) -> int:
        """Weights and work memory as pyACL told them for each file, and this session's own buffers."""
        return sum(model.device_bytes for model in self._models)

    def watched(self) -> AbstractContextManager[Sequence[DeviceReading]]:
        """Sample the card through npu-smi while the block runs, without touching pyACL."""
        return watched(self._device_id)

    def close(self) -> None:
        """Release everything, in reverse order.

        Raises:
            MeasureError, ToolchainError: the first refusal, after all the rest was released. Where an earlier failure
                has left the device in doubt, refusals are logged: the failure is what matters.
        """
        _release(self._undo, self._lock)

    def _check_open(self) -> None:
        if not self._undo:
            raise MeasureError("The session is closed; open the artifact again.")

    def _after_a_call(self) -> DeviceTimes:
        """What the turns of the last call but its last one took."""
        self._check_open()
        if self._earlier_turns is None:
            raise MeasureError("No call has been made, or the last one failed: there are no times and no costs.")
        do("rt.set_context", self._context)
        return self._earlier_turns

    def _execute(self, plan: Plan, turn: Turn, feeds: Feeds, length: int | None) -> dict[str, Array]:
        for bound in plan.inputs:
            values = rows_of(feeds[bound.port.name], bound.port, turn)
            place(to_device(values, bound.kind, bound.port.name), bound.view, bound.port)
        try:
            self._enqueue(plan)
            self._wait(self._stream, TIMEOUT_MS)
        except BaseException:
            # What was queued still uses our buffers: wait for it, whatever it says; the first failure counts.
            try:
                _settle(self._stream)
            except WorkbenchError as error:
                _log.debug("waiting after a failed execution: %s", error)
            raise
        outputs = {}
        for bound, port in zip(plan.outputs, self._outputs, strict=True):
            part = cut(bound.view, port, turn, length)
            values = from_device(part, bound.kind, np.dtype(port.dtype), port.name)
            outputs[port.name] = values.copy() if values is part else values  # the next call writes over the view
        return outputs

    def _enqueue(self, plan: Plan) -> None:
        model, stream, events = plan.model, self._stream, self._events
        model.choose(plan.gear)
        self._record(events[0], stream)
        for bound in plan.inputs:
            buffer = bound.buffer
            self._copy(buffer.device, buffer.size_bytes, buffer.host, bound.size_bytes, _HOST_TO_DEVICE, stream)
        self._record(events[1], stream)
        self._launch(model.model_id, model.inputs, model.outputs, stream)
        self._record(events[2], stream)
        for bound in plan.outputs:
            buffer = bound.buffer
            self._copy(buffer.host, buffer.size_bytes, buffer.device, bound.size_bytes, _DEVICE_TO_HOST, stream)
        self._record(events[3], stream)

    def _read_events(self) -> DeviceTimes:
        to_device_ms, execute_ms, to_host_ms = (
            take("rt.event_elapsed_time", start, end)
            for start, end in zip(self._events, self._events[1:], strict=False)
        )
        return DeviceTimes(host_to_device_ms=to_device_ms, execute_ms=execute_ms, device_to_host_ms=to_host_ms)


def _complete_files(directory: Path, artifact: Artifact) -> list[CompiledFile]:
    """The OM files, after all were found whole: pyACL says little about a truncated file."""
    for compiled in artifact.files:
        file = directory / compiled.file
        if not file.is_file() or file.stat().st_size != compiled.size_bytes:
            raise MeasureError(f"{file}: pyACL cannot load it: it is missing or not complete. Compile again.")
    models = [compiled for compiled in artifact.files if compiled.file != INTERFACE]
    if not models:
        raise MeasureError(f"{directory}: pyACL cannot load an artifact without compiled files. Compile again.")
    return models


def _check_soc(artifact: Artifact) -> None:
    """An OM is compiled for one chip; loading it on another fails late and unclearly (pyacl.md §4, row 38)."""
    here, wanted = read("get_soc_name", null=()), artifact.toolchain.device
    if not here:
        raise ToolchainError(
            "pyACL cannot tell which chip this is (acl.get_soc_name gave none). Run `workbench doctor`."
        )
    if soc_name(str(here)) != soc_name(wanted):
        raise MeasureError(f"This device is {here}; the files were compiled for {wanted}. Compile them for this one.")


def _check_shapes(model: LoadedModel, file: CompiledFile) -> None:
    for shape in model.plans:
        for said, found in ((file.batch, shape.batch), (file.sequence_bin, shape.length)):
            if said is not None and found is not None and said != found:
                wanted = Shape(batch=file.batch, length=file.sequence_bin)
                raise MeasureError(f"{file.file} was compiled for {shape}, its entry says {wanted}. Compile again.")


def _output_port(port: Port, index: int, plans: dict[Shape, Plan]) -> Port:
    """The port with the axes that are cut back to the call's own size.

    A free axis of an output is called the batch or the length by its place; the compiled shapes know better. One that
    is not as long as the text in every shape is no text and comes back whole.
    """
    sizes = []
    for axis, name in enumerate(port.shape):
        compiled = [(shape, plan.outputs[index].view.shape[axis]) for shape, plan in plans.items()]
        if name == "batch" and any(size != shape.batch for shape, size in compiled if shape.batch is not None):
            raise MeasureError(
                f"Output {port.name!r} has {compiled[0][1]} rows in a shape of {compiled[0][0]}: not one for each row "
                "that is fed. Give its first axis a fixed size when exporting."
            )
        free = {"batch": lambda shape: shape.batch, "sequence": lambda shape: shape.length}
        keep = not isinstance(name, int) and all(size == free[name](shape) for shape, size in compiled)
        sizes.append(name if keep else compiled[0][1])
    return replace(port, shape=tuple(sizes))


def _expected(port: Port) -> Input:
    shape = tuple(axis if isinstance(axis, int) else None for axis in port.shape)
    return Input(dtype=np.dtype(port.dtype), shape=shape)


def _event(undo: UndoStack) -> int:
    event: int = take("rt.create_event_with_flag", _TIME_STAMPS)
    undo.add(partial(do, "rt.destroy_event", event))
    return event


def _settle(stream: int) -> None:
    do("rt.synchronize_stream_with_timeout", stream, TIMEOUT_MS)


def _release(undo: UndoStack, lock: threading.RLock) -> None:
    if forked():  # the handles are the parent's, and so may the lock be
        return
    with lock:
        failed_before = bool(doubt())
        error = undo.release()
    if error is not None and failed_before:
        _log.warning("while a session was closed: %s", error)
    elif error is not None:
        raise error


def _sum(a: DeviceTimes, b: DeviceTimes) -> DeviceTimes:
    return DeviceTimes(
        host_to_device_ms=a.host_to_device_ms + b.host_to_device_ms,
        execute_ms=a.execute_ms + b.execute_ms,
        device_to_host_ms=a.device_to_host_ms + b.device_to_host_ms,
    )


def _stated_costs(plans: Sequence[Plan]) -> tuple[TimingModel, CallCosts] | None:
    """What an emulated pyACL states: the clock, and what executions of these plans in turn cost; None on a real device.

    Raises:
        ToolchainError: the statement is not of the form that this workbench reads.
    """
    stated = getattr(library(), "emulated", None)
    if stated is None:
        return None
    works: list[Work] = []
    try:
        for plan in plans:
            plan.model.choose(plan.gear)
            copied = [[bound.size_bytes for bound in side] for side in (plan.inputs, plan.outputs)]
            told = stated.execution_costs(plan.model.model_id, *copied)
            works += decode(CallCosts, loads(told)).works
        return decode(TimingModel, loads(stated.clock())), summed(works)
    except (DecodeError, ValueError, TypeError) as error:
        raise ToolchainError(
            f"the emulated pyACL states its costs in a form that is not known here: {error}. Switch on the emulator of "
            'this workbench: eval "$(workbench emulator env)".'
        ) from error
