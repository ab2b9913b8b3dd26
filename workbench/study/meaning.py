"""What a comparison's outputs mean: the dataset's scorer over the batches that both models run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics import Outcomes, Scorer, concatenate, scorer_of, summarize
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.quantization.observe import Feeds
from workbench.study.comparison import Judgement
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.objectives import Constraint

Array = npt.NDArray[Any]


class DatasetScoring:
    """A `Scoring` of one split's first samples.

    Attributes:
        failed: why B cannot be scored.
    """

    def __init__(self, dataset: Dataset, scorer: Scorer, constraints: Sequence[Constraint] = ()) -> None:
        """`constraints` are an experiment's; those on the drop of the primary metric count here."""
        self.failed = ""
        self._dataset, self._scorer = dataset, scorer
        drops = {c.metric: c.limit for c in constraints}
        self._drop = drops.get("accuracy_drop" if scorer.unit else "accuracy_drop_pp")
        self._limits = {c.metric: c for c in scorer.limits(every=True)} if isinstance(scorer, MeaningScorer) else {}
        self._batch: Batch | None = None
        self._parts: tuple[list[Outcomes], list[Outcomes]] = ([], [])

    def feeds(self, split: Split, batch: int, stop: int) -> Iterator[Feeds]:
        for found in self._dataset.batches(split, batch, stop=stop):
            self._batch = found
            yield found.feeds

    def add(self, a: Mapping[str, Array], b: Mapping[str, Array]) -> None:
        assert self._batch is not None  # `feeds` gives what is compared
        if self.failed:
            return
        ours = self._scorer.score(a, self._batch, a)
        try:
            theirs = self._scorer.score({name: b[name] for name in a if name in b}, self._batch, a)
        except MeasureError as error:
            self.failed = str(error)
            return
        for parts, found in zip(self._parts, (ours, theirs), strict=True):
            parts.append(found)

    def judgements(self) -> tuple[Judgement, ...]:
        if not self._parts[0]:
            return ()
        ours, theirs = (summarize(concatenate(parts)) for parts in self._parts)
        return tuple(self._judgement(metric, ours[metric], theirs[metric]) for metric in theirs)

    def _judgement(self, metric: str, a: float, b: float) -> Judgement:
        if metric == self._scorer.primary and self._drop is not None:
            drop = (a - b if self._scorer.higher else b - a) * (1 if self._scorer.unit else 100)
            words = f"at most {self._drop:g} {self._scorer.unit or 'pp'} worse"
            return Judgement(metric=metric, a=a, b=b, limit=words, kept=drop <= self._drop)
        limit = self._limits.get(metric)
        if limit is None:
            return Judgement(metric=metric, a=a, b=b)
        return Judgement(metric=metric, a=a, b=b, limit=str(limit), kept=limit.violation(b) <= 0)


def scoring_of(dataset: Dataset, model: Model, constraints: Sequence[Constraint] = ()) -> DatasetScoring | None:
    """None where nothing says what the outputs mean: then their numbers alone are compared."""
    try:
        return DatasetScoring(dataset, scorer_of(dataset, model), constraints)
    except ConfigError:
        if dataset.interface.outputs or dataset.metric is not None:
            raise
        return None
