"""The waist between the workbench and a vendor: `Target` and `Session`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from workbench.quantization.record import QuantizationRecord
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.device_use import DeviceReading
from workbench.values.model import Model
from workbench.values.modelled_times.figures import own_ms
from workbench.values.modelled_times.statement import CallCosts, TimingModel, kind_of

Array = npt.NDArray[np.generic]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; int64 ids and masks, float32 otherwise, as the model declares."""


@dataclass(frozen=True, slots=True)
class OperatorIssue:
    """Something in a model that a target refuses ('error') or handles badly ('warning').

    Attributes:
        node: name of the ONNX node, input or dimension concerned.
        remedy: what the user does about it.
        source: where the fact stands (page of the vendor, file and line, or the measurement).
        slow: it runs, and takes time on the device that `problem` names: told before anything is compiled.
    """

    severity: Literal["error", "warning"]
    node: str
    problem: str
    remedy: str
    source: str
    operator: str = ""
    slow: bool = field(default=False, kw_only=True)


class Session(Protocol):
    """A loaded artifact. Not thread-safe; one owner, who closes it.

    `run` takes any number of rows, by one call of the file where it takes so many (`targets.full_rows`), and is
    deterministic for equal feeds within one session unless the target's documentation says otherwise.
    A row does not depend on the other rows of its call, nor on how far it is padded (behind the model's own mask), by
    more than `row_tolerance`: a service may batch texts as they come.
    """

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Outputs by name for one batch, rows in the order of the feeds.

        Raises:
            MeasureError: the runtime refused the feeds or failed; the message names the input concerned.
        """

    def close(self) -> None:
        """Release everything; a second call does nothing, `run` afterwards raises MeasureError."""


@dataclass(frozen=True, slots=True)
class RunSession:
    """A function as a session."""

    run: Callable[[Feeds], dict[str, Array]]
    close: Callable[[], None] = lambda: None


FLOAT32_ROWS, INT8_ROWS = 1e-5, 1e-2
"""`row_tolerance` of float32, and of FP16, BF16 and INT8 with fixed scales. Integer sums are exact, yet a float sum in
another order may move a value that lies between two steps by a whole one."""


def row_tolerance(candidate: Candidate) -> float | None:
    """How far a row may move with the batch and the bin it falls into, as a share of the largest value of its output.

    None for dynamic INT8, where nothing bounds it: one scale serves all activations of a call, so every row's rounding
    follows the largest value in the batch. Measured on BERT-mini's logits, batches of 1, 8 and 32 in bins of 8 to 256:
    ONNX Runtime 1.31.1, dynamic INT8, 400 texts: 0.015 (mean of the rows 0.002), and 2 labels changed; float and static
    INT8 there equal to the bit. OpenVINO 2026, 100 texts: float 2.3e-7, static INT8 8.6e-4, no label changed.
    """
    if candidate.quantization.scheme == "dynamic":
        return None
    return FLOAT32_ROWS if computes_in_float32(candidate) else INT8_ROWS


FLOAT32_REPLAY, INT8_REPLAY = 1e-4, 1e-2
"""`replay_tolerance` of float32, and of INT8, bf16 and fp16. Equal machines replay to the bit; another instruction set
sums floats in another order, which can move a quantized value by a whole step [inferred]."""


def replay_tolerance(candidate: Candidate) -> float:
    """How far the outputs of one artifact for equal feeds in equal batches may differ between two machines.

    As a share of the largest output. Wider than `row_tolerance`, which is about one machine.
    """
    return FLOAT32_REPLAY if computes_in_float32(candidate) else INT8_REPLAY


def computes_in_float32(candidate: Candidate) -> bool:
    """Whether nothing of it is said to be rounded further than float32 rounds."""
    plain = candidate.quantization.scheme == "none" and candidate.precision.mode == "fp32"
    return plain and not candidate.compile.rounds_further()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Where the time of one call went, by the device's own events."""

    host_to_device_ms: float
    execute_ms: float
    device_to_host_ms: float


@runtime_checkable
class DeviceSession(Protocol):
    """A session on a device beside the host: what it can tell besides its outputs."""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """See `Session.run`."""

    def times(self) -> DeviceTimes:
        """Of the last `run`, by the device's events; MeasureError before the first. Ask `times_of`."""

    def device_memory_bytes(self) -> int:
        """Device memory that this session holds: weights, work memory, buffers."""

    def watched(self) -> AbstractContextManager[Sequence[DeviceReading]]:
        """Look at its device again and again while the block runs; what was seen so far."""


@runtime_checkable
class StatesCosts(Protocol):
    """A session whose device may be modelled: it tells what its calls cost, which is all that modelled times are of.

    Optional: without it nothing of an emulated device can be timed.
    """

    def costs(self) -> tuple[TimingModel, CallCosts] | None:
        """The device's clock and what the last `run` asked of it; None where a real device did it.

        Raises:
            MeasureError: there was no `run` yet.
        """


def times_of(session: DeviceSession) -> DeviceTimes:
    """Of the last `run`: from its stated costs where the device is modelled, else by the device's own events."""
    stated = session.costs() if isinstance(session, StatesCosts) else None
    if stated is None:
        return session.times()
    clock, call = stated

    def spent_ms(kind: str) -> float:
        return own_ms(clock, CallCosts(works=tuple(work for work in call.works if kind_of(work) == kind)))

    return DeviceTimes(
        host_to_device_ms=spent_ms("to_device"),
        execute_ms=spent_ms("execution"),
        device_to_host_ms=spent_ms("to_host"),
    )


class Target(Protocol):
    """A vendor. Stateless and cheap to construct; safe to use from several threads.

    `lower` is pure Python and quick; `compile` may be slow. Both write only below the directory they are given,
    which exists and is empty. Equal inputs give equal bytes from `lower`.
    """

    name: str

    def toolchain(self) -> Toolchain:
        """What takes part besides the candidate.

        Raises:
            ToolchainError: something the target needs is missing; the message says what and how to get it.
        """

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        """Everything known to go wrong before any work, errors first. Never raises for the model's content."""

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        """Rewrite the model for the compiler and return the file written below `to`.

        Args:
            record: given exactly when `candidate.quantization.scheme` is 'static'.

        Raises:
            LoweringError: the record does not fit the model, or a layer cannot be rewritten.
        """

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        """Compile one lowered model into files below `to`.

        Depends on `lowered`, `candidate.precision`, `candidate.quantization.scheme`, `candidate.compile` and the
        toolchain, on nothing else: candidates that differ only in serving settings share the result.

        Raises:
            CompileError: the compiler refused; carries its log.
        """

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        """Load an artifact whose files lie in `directory`, with the candidate's serving settings.

        Args:
            device: which of `devices()`, from 0.

        Raises:
            MeasureError: the runtime cannot load it.
            ToolchainError: there is no such device.
        """

    def devices(self) -> int:
        """How many devices sessions of this process can be opened on; 1 where the host computes.

        Initializes nothing: a process whose children open the sessions may ask.
        """

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        """Load a lowered model so that every run also gives these intermediate tensors, float32, by name.

        Uncompiled form, one thread: for explaining numbers, never for timing. Tensors that the model lacks, or that
        are no float tensors, are left out.

        Raises:
            MeasureError: the runtime cannot load it.
        """


@runtime_checkable
class CompilesEach(Protocol):
    """A target that compiles a file for each shape and hands every one over as soon as it is complete.

    Optional: a target without it is asked to `compile` one shape after the other. Only asked for candidates whose
    settings say `one_file_a_shape`.
    """

    def compile_each(
        self, lowered: Path, candidate: Candidate, to: Path, made: Callable[[Artifact, Path], None]
    ) -> None:
        """As `Target.compile`, every shape in a folder of its own below `to`, as an artifact of its own.

        Args:
            made: called in this thread with each artifact and its folder, in the order of completion; when a compile
                fails, also with those that were complete by then. The folder holds nothing of other shapes.

        Raises:
            CompileError: the compiler refused a shape; carries its log.
        """


@runtime_checkable
class StatesLoweredForm(Protocol):
    """A target whose compiles cost so much that times are predicted before them (`prediction.shape_times`).

    Optional: without it a lowered file shares times with itself alone.
    """

    def lowered_form(self, lowered: Path, candidate: Candidate) -> str:
        """Equal for two candidates if, as far as the lowered files and settings tell, files compiled of them for one
        shape do the same work: what differs is values of weights, scales and zero points, or which shapes are compiled.

        Raises:
            CandidateError: the file cannot be read.
        """


@runtime_checkable
class StatesForms(Protocol):
    """A target that says what of its artifacts decides outputs, and what decides times (`targets.classes` asks).

    Optional: of a target without it every byte of an artifact and every setting that it is opened with decides both.
    Serving settings and the toolchain belong to a class in any case, and are not said here.
    """

    def numerics_form(self, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
        """Equal for two artifacts only if they give equal outputs, to the bit, for equal feeds.

        Raises:
            CandidateError: a file cannot be read.
        """

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        """Equal for two artifacts only if the same kernels run on the same types and shapes for a feed of this shape:
        what may differ is the values of weights, scales and zero points. May call the vendor's tools.

        Args:
            length: padded positions of a row; None where samples are no sequences.

        Raises:
            CandidateError: a file cannot be read.
        """


class Calibrator(Protocol):
    """A vendor's own quantizer, which derives records instead of the workbench where it is installed.

    Made once for a sweep; it looks at the machine when it is made, and whether it can help at each question."""

    def configuration(self, candidate: Candidate) -> str | None:
        """What the quantizer is told about a candidate; None where the workbench calibrates it.

        Raises:
            CalibrationError: the candidate asks for the quantizer, which is not there or cannot do it.
        """

    def identity(self) -> Mapping[str, object]:
        """Names and versions that decide about its records beside the configuration: part of the store's key."""

    def write_record(self, model: Model, configuration: str, batches: Callable[[], Iterator[Feeds]], to: Path) -> None:
        """Calibrate, and leave `record.json` and what else is worth keeping in the folder `to`.

        Raises:
            CalibrationError: it failed, or its record cannot be trusted; carries its log.
            ToolchainError: its installation is broken.
        """
