"""Compiled files on a device through pyACL.

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
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from workbench.targets.ascend.acl.calls import checked, do, doubt, library, read, released, take
from workbench.targets.ascend.acl.loaded_model import LoadedModel, Plan, converted
from workbench.targets.ascend.acl.process import check_process, enter, forked, leave
from workbench.targets.ascend.interface import Port, Shape, Turn, cut, extent, place, read_interface, rows_of, turns
from workbench.targets.ascend.npu_smi import soc_name, watched
from workbench.targets.ascend.settings import INTERFACE
from workbench.targets.base import Array, DeviceTimes, Feeds
from workbench.targets.feeds import FileRows, check_feeds
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


class AscendSession:
    """An artifact's files loaded onto a device, all of them: a service may form any batch that was compiled. See
    `workbench.targets.base.Session` and `DeviceSession`.

    Equal feeds give equal outputs. Outputs have the types of the ONNX model, whatever the compiled one holds. Calls
    from several threads are served one after another, each with the session's context made current in its thread.

    Args:
        device_id: as pyACL counts inside this process, after ASCEND_RT_VISIBLE_DEVICES.

    Raises:
        MeasureError: a file is missing, truncated, for another chip, or pyACL refuses it.
        ToolchainError: no pyACL, no device, or no right to use it.
    """

    def __init__(self, directory: Path, artifact: Artifact, *, device_id: int = 0) -> None:
        compiled = _complete_files(directory, artifact)
        try:
            self._interface = read_interface(directory)
        except (OSError, ValueError) as error:
            raise MeasureError(f"{directory / INTERFACE}: pyACL cannot load the files beside it: {error}") from error
        self._device_id, self._lock, self._undo, self._closed = device_id, threading.RLock(), ExitStack(), False
        self._earlier_turns: list[tuple[float, ...]] | None = None
        self._served: tuple[Turn, ...] = ()
        self._undo.callback(leave, enter(device_id, self.close))
        try:
            self._open(directory, artifact, compiled)
        except BaseException:  # what failed first is what is reported
            refusal = released(self._undo)
            if refusal is not None:
                _log.warning("while a session that could not be opened was released: %s", refusal)
            raise

    def _open(self, directory: Path, artifact: Artifact, compiled: Sequence[CompiledFile]) -> None:
        undo = self._undo
        _check_soc(artifact)
        self._context: int = take("rt.create_context", self._device_id)
        undo.callback(do, "rt.destroy_context", self._context)
        self._stream: int = take("rt.create_stream")
        undo.callback(do, "rt.destroy_stream", self._stream)
        self._events: list[int] = []
        for _ in range(4):
            self._events.append(take("rt.create_event_with_flag", _TIME_STAMPS))
            undo.callback(do, "rt.destroy_event", self._events[-1])
        self._models = []
        for file in compiled:
            model = LoadedModel(directory / file.file, self._interface, undo)
            _check_shapes(model, file)
            self._models.append(model)
        # what is added last is released first: the context, in whichever thread, and then nothing may still run
        undo.callback(self._settle)
        undo.callback(do, "rt.set_context", self._context)
        self._plans = {shape: plan for model in self._models for shape, plan in model.plans.items()}
        ports = self._interface
        self._outputs = tuple(_output_port(port, index, self._plans) for index, port in enumerate(ports.outputs))
        self._rows = FileRows(ports.inputs, self._outputs)
        self._set_context = checked("rt.set_context")
        self._record = checked("rt.record_event")
        self._copy = checked("rt.memcpy_async")
        self._launch = checked("mdl.execute_async")
        self._wait = checked("rt.synchronize_stream_with_timeout")

    def run(self, feeds: Feeds) -> dict[str, Array]:
        check_process()
        with self._lock:
            self._check_open()
            check_feeds(feeds, self._interface.inputs)
            wanted = extent(feeds, self._interface)
            served = turns(tuple(self._plans), wanted)
            self._set_context(self._context)
            self._earlier_turns = None
            spent: list[tuple[float, ...]] = []
            parts: list[dict[str, Array]] = []
            for turn in served:
                if parts:  # the events are about to be recorded again
                    spent.append(self._elapsed_ms())
                parts.append(self._execute(self._plans[turn.shape], turn, feeds, wanted.length))
            self._earlier_turns, self._served = spent, served
        return self._rows.joined(parts)

    def times(self) -> DeviceTimes:
        """Of the last `run`: copies and execution apart, by events on the stream; several turns added up."""
        check_process()
        with self._lock:
            turns_ms = (*self._after_a_call(), self._elapsed_ms())
        to_device_ms, execute_ms, to_host_ms = map(sum, zip(*turns_ms, strict=True))
        return DeviceTimes(host_to_device_ms=to_device_ms, execute_ms=execute_ms, device_to_host_ms=to_host_ms)

    def costs(self) -> tuple[TimingModel, CallCosts] | None:
        """What the last `run` asked of an emulated device, as its pyACL states it; None on a real one. See
        `workbench.targets.base.StatesCosts`.

        Raises:
            ToolchainError: the statement is not of the form that this workbench reads.
        """
        check_process()
        with self._lock:
            self._after_a_call()
            stated = getattr(library(), "emulated", None)
            if stated is None:
                return None
            works: list[Work] = []
            try:
                for plan in (self._plans[turn.shape] for turn in self._served):
                    plan.model.choose(plan.gear)
                    copied = [[bound.view.nbytes for bound in side] for side in (plan.inputs, plan.outputs)]
                    told = stated.execution_costs(plan.model.model_id, *copied)
                    works += decode(CallCosts, loads(told)).works
                return decode(TimingModel, loads(stated.clock())), summed(works)
            except (DecodeError, ValueError, TypeError) as error:
                raise ToolchainError(
                    f"the emulated pyACL states its costs in a form that is not known here: {error}. Switch on the "
                    'emulator of this workbench: eval "$(workbench emulator env)".'
                ) from error

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
        if forked():  # the handles are the parent's, and so may the lock be
            return
        with self._lock:
            failed_before, self._closed = bool(doubt()), True
            error = released(self._undo)
        if error is not None and failed_before:
            _log.warning("while a session was closed: %s", error)
        elif error is not None:
            raise error

    def _check_open(self) -> None:
        if self._closed:
            raise MeasureError("The session is closed; open the artifact again.")

    def _after_a_call(self) -> Sequence[tuple[float, ...]]:
        """What the turns of the last call but its last one took."""
        self._check_open()
        if self._earlier_turns is None:
            raise MeasureError("No call has been made, or the last one failed: there are no times and no costs.")
        do("rt.set_context", self._context)
        return self._earlier_turns

    def _execute(self, plan: Plan, turn: Turn, feeds: Feeds, length: int | None) -> dict[str, Array]:
        for bound in plan.inputs:
            values = rows_of(feeds[bound.port.name], bound.port, turn)
            place(converted(values, bound.view.dtype, bound.port.name), bound.view, bound.port)
        try:
            self._enqueue(plan)
            self._wait(self._stream, TIMEOUT_MS)
        except BaseException:
            # What was queued still uses our buffers: wait for it, whatever it says; the first failure counts.
            try:
                self._settle()
            except WorkbenchError as error:
                _log.debug("waiting after a failed execution: %s", error)
            raise
        outputs = {}
        for bound, port in zip(plan.outputs, self._outputs, strict=True):
            part = cut(bound.view, port, turn, length)
            values = converted(part, np.dtype(port.dtype), port.name)
            outputs[port.name] = values.copy() if values is part else values  # the next call writes over the view
        return outputs

    def _enqueue(self, plan: Plan) -> None:
        model, stream, events = plan.model, self._stream, self._events
        model.choose(plan.gear)
        self._record(events[0], stream)
        for bound in plan.inputs:
            slot = bound.slot
            self._copy(slot.device, slot.size_bytes, slot.host, bound.view.nbytes, _HOST_TO_DEVICE, stream)
        self._record(events[1], stream)
        self._launch(model.model_id, model.inputs, model.outputs, stream)
        self._record(events[2], stream)
        for bound in plan.outputs:
            slot = bound.slot
            self._copy(slot.host, slot.size_bytes, slot.device, bound.view.nbytes, _DEVICE_TO_HOST, stream)
        self._record(events[3], stream)

    def _settle(self) -> None:
        do("rt.synchronize_stream_with_timeout", self._stream, TIMEOUT_MS)

    def _elapsed_ms(self) -> tuple[float, ...]:
        """Of the last execution: to the device, in it, back."""
        return tuple(take("rt.event_elapsed_time", start, end) for start, end in pairwise(self._events))


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
