"""What a comparison's outputs mean: the dataset's scorer over the batches that both models run.

Where a state is carried, what is compared tensor by tensor are single steps with the float model's states; what is
scored are whole sequences, each model with the states that it reached itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from workbench.evaluation.carried import calibration_feeds, whole_samples
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import Outcomes, concatenate, summarize
from workbench.inputs.metrics.score import Scorer
from workbench.quantization.observe import Feeds
from workbench.study.compared import Judgement
from workbench.study.comparison import Run
from workbench.targets.base import RunSession
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

    def __init__(self, dataset: Dataset, scorer: Scorer, model: Model, constraints: Sequence[Constraint] = ()) -> None:
        """`constraints` are an experiment's; those on the drop of the primary metric count here."""
        self.failed = ""
        self._dataset, self._scorer, self._model = dataset, scorer, model
        drops = {c.metric: c.limit for c in constraints}
        self._drop = drops.get("accuracy_loss" if scorer.unit else "accuracy_loss_pp")
        self._limits = {c.metric: c for c in scorer.limits(every=True)} if isinstance(scorer, MeaningScorer) else {}
        self._batch: Batch | None = None
        self._sequences: Callable[[], Iterator[Batch]] | None = None
        self._parts: tuple[list[Outcomes], list[Outcomes]] = ([], [])

    def feeds(self, split: Split, batch: int, stop: int) -> Iterator[Feeds]:
        if self._dataset.interface.state:
            self._sequences = functools.partial(self._dataset.batches, split, batch, stop=stop)
            yield from calibration_feeds(self._dataset, self._model, batch=batch, samples=stop, split=split)
            return
        for found in self._dataset.batches(split, batch, stop=stop):
            self._batch = found
            yield found.feeds

    def add(self, a: Mapping[str, Array], b: Mapping[str, Array]) -> None:
        if self._sequences is not None:
            return
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

    def whole(self, open_a: Callable[[], Run], open_b: Callable[[], Run]) -> None:
        if self._sequences is None:
            return
        batches, self._sequences = self._sequences, None
        sides = [whole_samples(RunSession(run), self._dataset.interface, self._model) for run in (open_a(), open_b())]
        for batch in batches():
            self._batch = batch
            try:
                a, b = (side.run(batch.feeds) for side in sides)
            except KeyError as error:
                self.failed = f"one of the two does not give the carried output {error}"
                return
            self.add(a, b)

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
    dataset = replace(dataset, retrieval=None)  # documents are not searched here, embeddings are compared
    try:
        return DatasetScoring(dataset, scorer_of(dataset, model), model, constraints)
    except ConfigError:
        if dataset.interface.outputs or dataset.metric is not None:
            raise
        return None
