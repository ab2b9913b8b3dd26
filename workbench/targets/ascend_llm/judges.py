"""A checkpoint executed over windows of text, beside the float model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.outcomes import TextOutcomes, float_outcomes, text_outcomes
from workbench.quantization.llm.reference import float_reference
from workbench.quantization.llm.windows import Window
from workbench.targets.ascend_llm.execution import served_logits
from workbench.targets.ascend_llm.served import read_served
from workbench.targets.language import TokenWindow, WindowScores
from workbench.values.errors import ConfigError, MeasureError


class CheckpointJudge:
    """See `workbench.targets.language.Judge`. The float model runs once for all checkpoints: its states are kept."""

    def __init__(
        self, model: LlmModel, folder: Path | None, windows: Sequence[TokenWindow], kept_in: Path, name: str
    ) -> None:
        """Args:
        folder: of the checkpoint; None for the float model itself.
        name: of the candidate, for errors.
        """
        self._name = name
        self._windows = [Window(ids=torch.from_numpy(each.ids)[None], first=each.first) for each in windows]
        self._reference = float_reference(model, [each.ids for each in self._windows], kept_in=kept_in)
        try:
            self._forward = None if folder is None else served_logits(read_served(folder))
        except ConfigError as error:
            raise MeasureError(f"an engine would not read what was written: {error}") from error

    def scores(self, start: int, stop: int) -> WindowScores:
        chosen = self._windows[start:stop]
        if self._forward is None:
            return _plain(float_outcomes(chosen, self._reference.logits(start, stop)))
        given = self._forward([each.ids for each in chosen])
        return _plain(
            text_outcomes(self._name, chosen, self._reference.logits(start, stop), given, numbered_from=start)
        )


def _plain(outcomes: TextOutcomes) -> WindowScores:
    return WindowScores(nll=outcomes.nll, predictions=outcomes.predictions, kl=outcomes.kl, agreed=outcomes.agreed)
