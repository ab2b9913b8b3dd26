"""Profiler: a vendor's own tools that say where a candidate's time goes on the device, and what overflows there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Profiler(Protocol):
    """Both change what they look at, so they run a program of the workbench apart from every measurement.

    Args of both:
        replay: the program and its arguments, which opens the artifact and runs it.
        to: folder for the vendor's own files; made when missing.
        environment: of the program.
    """

    def where_time_goes(
        self, replay: Sequence[str], artifact: Path, to: Path, *, environment: Mapping[str, str]
    ) -> str:
        """Operators by their device time, for the terminal.

        Args:
            artifact: folder of the compiled files.

        Raises:
            ToolchainError: the profiler is missing.
            MeasureError: the run failed; carries its log.
        """

    def overflows(self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str]) -> str:
        """What overflowed in so many calls, for the terminal.

        Raises:
            ToolchainError: the toolkit lacks what reads the files.
            MeasureError: the run failed; carries its log.
        """
