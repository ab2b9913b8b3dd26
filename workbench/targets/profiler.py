"""Profiler: a vendor's own tools that say where a candidate's time goes on the device, and what overflows there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workbench.values.artifact import Artifact
from workbench.values.device_profile import DeviceProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel of a compiled file.

    Attributes:
        nodes: of the lowered graph that it came of; empty for one that the compiler put in.
        call_us: what it takes of one call.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    call_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflows:
    """Attributes:
    text: for the terminal.
    suspects: node, or operator where no node is told → what of it is not finite, where numbers are affected that the
        model computes with.
    """

    text: str
    suspects: Mapping[str, str]


class Profiler(Protocol):
    """Both change what they look at, so they run a program of the workbench apart from every measurement.

    Args:
        replay: the program and its arguments, which opens the artifact and runs it.
        to: folder for the vendor's own files; made when missing.
        environment: of the program.
    """

    def where_time_goes(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> DeviceProfile:
        """What the device did in the run, and when it idled.

        Args:
            directory: of the compiled files.

        Raises:
            ToolchainError: the profiler is missing.
            MeasureError: the run failed; carries its log.
        """

    def read(self, folder: Path, artifact: Artifact, directory: Path) -> DeviceProfile:
        """The same of a profile that the vendor's profiler left in a folder, on whichever machine.

        Raises:
            MeasureError: there is none, or it holds no operator with a time.
        """

    def kernels(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> tuple[KernelTime, ...]:
        """What each kernel takes of one call, in order, for an artifact of one file: what the run calls, all calls
        alike. They add up to a call from its first kernel's start to its last one's end.

        Raises:
            ToolchainError: the profiler is missing.
            MeasureError: the run failed, or its profile tells no kernel by name.
            CandidateError: the compiled file cannot be read.
        """

    def overflows(
        self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str], once: bool = False
    ) -> Overflows:
        """What overflowed in so many calls.

        Args:
            once: of each operator the first time is enough.

        Raises:
            ToolchainError: the toolkit lacks what reads the files.
            MeasureError: the run failed; carries its log.
        """

    def way_on(self, nodes: Sequence[str]) -> str:
        """What a user may change where these overflow."""
