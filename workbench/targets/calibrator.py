"""Calibrator: a vendor's own quantizer, which derives records instead of the workbench where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from workbench.targets.base import Feeds
from workbench.values.candidate import Candidate
from workbench.values.model import Model


class Calibrator(Protocol):
    """Made once for a sweep; it looks at the machine when it is made, and whether it can help at each question."""

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
