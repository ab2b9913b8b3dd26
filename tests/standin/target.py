"""Lowering and numbers of ONNX Runtime; compiles, times and cards are made up."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.quantization.record import QuantizationRecord
from workbench.targets.base import Array, DeviceTimes, Feeds, OperatorIssue, Session
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.device_use import DeviceReading
from workbench.values.model import Model
from workbench.values.modelled_times.statement import CallCosts, TimingModel, Work


def share(candidate: Candidate) -> float:
    """From 0 to 1, by its digest."""
    return int(candidate.id[:8], 16) / 0xFFFFFFFF


class StandinTarget:
    name = "standin"

    def toolchain(self) -> Toolchain:
        version = os.environ.get("STANDIN_VERSION", "1.0")
        components = {"standin-compiler": version}
        return Toolchain(target=self.name, components=components, device="stand-in", emulated=True)

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        return ()

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        return OnnxRuntimeTarget().lower(model, _host(candidate), record, to)

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        # a compile is a wait here: sweeps are looked at, not compilers
        time.sleep(float(os.environ.get("STANDIN_COMPILE_S", "0")) * (0.5 + share(candidate)))
        made = OnnxRuntimeTarget().compile(lowered, _host(candidate), to)
        return replace(made, target=self.name, toolchain=self.toolchain())

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        card = os.environ.get("STANDIN_CARD", "")
        if log := os.environ.get("STANDIN_LOG"):
            with Path(log).open("a", encoding="utf-8") as stream:
                stream.write(f"{candidate.id} {card}\n")
        if card and card == os.environ.get("STANDIN_HANGS"):
            time.sleep(1e6)  # it hangs, until somebody ends the process
        baseline = candidate.quantization.scheme == "none" and candidate.compile == type(candidate.compile)()
        if not baseline:
            time.sleep(float(os.environ.get("STANDIN_TIMING_S", "0")))  # a measurement is a wait here
        session = OnnxRuntimeTarget().open(artifact, directory, _host(candidate))
        return StandinSession(session, 2.0 if baseline else 1.0 + share(candidate))

    def devices(self) -> int:
        return 1

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        return OnnxRuntimeTarget().probe(lowered, tensors)


class StandinSession:
    def __init__(self, session: Session, call_ms: float) -> None:
        self._session, self._call_ms = session, call_ms

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return self._session.run(feeds)

    def times(self) -> DeviceTimes:
        return DeviceTimes(host_to_device_ms=0.0, execute_ms=self._call_ms, device_to_host_ms=0.0)

    def costs(self) -> tuple[TimingModel, CallCosts]:
        clock = TimingModel(name="stand-in", prices=(("ms", 1000.0),), unknowns=())
        return clock, CallCosts(works=(Work(count=1, amounts=(("ms", self._call_ms),)),))

    def device_memory_bytes(self) -> int:
        return 1 << 20

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[DeviceReading]]:
        yield []

    def close(self) -> None:
        self._session.close()


def _host(candidate: Candidate) -> Candidate:
    return replace(candidate, target="onnxruntime", compile=OnnxRuntimeCompile())
