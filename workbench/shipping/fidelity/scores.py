"""Scores of every way over the same samples, by the dataset's own scorer, for paired comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics import Outcomes, Outputs, concatenate, per_sample, scorer_of, select, summarize
from workbench.values.errors import MeasureError
from workbench.values.fidelity import FidelityPath
from workbench.values.measurement import AccuracyComparison
from workbench.values.model import Model
from workbench.values.significance import compare


class Scores:
    """What came of every sample, way by way; consecutive batches from the first sample on.

    Attributes:
        unscored: way → why it cannot be scored, such as NaN in its answers.
    """

    def __init__(self, paths: Iterable[FidelityPath], data: Dataset, model: Model) -> None:
        self._scorers = {path: scorer_of(data, model) for path in paths}
        self._outcomes: dict[FidelityPath, list[Outcomes]] = {path: [] for path in self._scorers}
        self._answered: list[npt.NDArray[np.bool_]] = []
        self.unscored: dict[FidelityPath, str] = {}

    def add(self, path: FidelityPath, outputs: Outputs, batch: Batch, reference: Outputs) -> None:
        """
        Args:
            reference: what float32 on the host gives for the same samples.
        """
        if path in self.unscored or path not in self._scorers:
            return
        try:
            self._outcomes[path].append(self._scorers[path].score(outputs, batch, reference))
        except MeasureError as error:
            self.unscored[path] = str(error)

    def answered(self, rows: npt.NDArray[np.bool_]) -> None:
        """Which samples of a batch the old platform answered."""
        self._answered.append(rows)

    def compared(
        self, path: FidelityPath, against: FidelityPath
    ) -> tuple[Mapping[str, tuple[float, float]], AccuracyComparison | None]:
        """(metric → (of the one, of the other), drop of the primary one) over the samples that both answered."""
        if any(p in self.unscored or not self._outcomes.get(p) for p in (path, against)):
            return {}, None
        ours, theirs = self._of(path, against), self._of(against, path)
        mine, other = summarize(ours), summarize(theirs)
        return {name: (mine[name], other[name]) for name in mine}, compare(per_sample(theirs), per_sample(ours))

    def close(self) -> None:
        for scorer in self._scorers.values():
            scorer.close()

    def _of(self, path: FidelityPath, beside: FidelityPath) -> Any:
        found: Any = concatenate(self._outcomes[path])  # a union's members do not mix
        if beside == "old platform" and path != "old platform":
            return select(found, np.flatnonzero(np.concatenate(self._answered)).astype(np.int64))
        return found
