"""How a dataset's samples are scored: the one thing that the evaluation knows of tasks, metrics and outputs.

    scorer = scorer_of(dataset, model)
    outcomes = scorer.score(session.run(batch.feeds), batch, reference)

A scorer belongs to one pass of one model over a split: it is given consecutive batches from the first sample on, and
may remember what it saw (a rank among samples needs the samples before).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics.extents import Extents
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import Outcomes
from workbench.inputs.metrics.score import Outputs, check_outputs, outcomes_of
from workbench.inputs.metrics.summary import primary_metric
from workbench.inputs.metrics.user_scorer import UserScorer
from workbench.inputs.metrics.uses import uses_of
from workbench.values.model import Model
from workbench.values.objectives import Constraint

_READ_AT_ONCE = 64
_labels: dict[str, tuple[Batch, ...]] = {}


class Scorer(Protocol):
    """Per-sample outcomes of one batch after the other.

    Attributes:
        needs_reference: `score` wants the float model's outputs for the same samples.
        primary: name in `summarize` of what objectives and constraints call 'accuracy'.
        unit: of the primary metric; empty for a share of 0..1.
        higher: more of the primary metric is better.
        identity: what decides the numbers besides the data's own digest, as plain JSON; None where that says it all.
            It is part of every stored outcome's key.
    """

    @property
    def needs_reference(self) -> bool: ...
    @property
    def primary(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def higher(self) -> bool: ...
    @property
    def identity(self) -> Mapping[str, object] | None: ...

    def check(self, model: Model) -> None:
        """Compare what the model declares with what is scored, before any work.

        Raises:
            ConfigError: an output is missing or cannot be scored.
        """
        ...

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> Outcomes:
        """Outcomes of one batch, a row per sample.

        Raises:
            MeasureError: an output holds NaN, or has an impossible shape.
            ConfigError: the user's declaration does not fit what the model gives.
        """
        ...

    def close(self) -> None:
        """Let go of what was started for scoring; may be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScorer:
    """By the task alone: classes and tags against labels."""

    data: Dataset

    @property
    def needs_reference(self) -> bool:
        return False

    @property
    def primary(self) -> str:
        return primary_metric(self.data.task)

    @property
    def unit(self) -> str:
        return ""

    @property
    def higher(self) -> bool:
        return True

    @property
    def identity(self) -> None:
        return None

    def check(self, model: Model) -> None:
        check_outputs(self.data.task, self.data.labels, model)

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> Outcomes:
        return outcomes_of(self.data.task, outputs, batch, labels=self.data.labels)

    def close(self) -> None:
        """Nothing was started."""


def scorer_of(dataset: Dataset, model: Model | None) -> Scorer:
    """A fresh scorer for one pass over a split.

    Args:
        model: the float model, for what it says of its outputs; None where only a compiled one is at hand.

    Raises:
        ConfigError: nothing says how these outputs are compared.
    """
    if dataset.metric is not None:
        return UserScorer(dataset.metric, dataset)
    if dataset.task != "tensors":
        return TaskScorer(data=dataset)
    return MeaningScorer(
        uses=uses_of(dataset, model),
        file=dataset.path,
        declared=bool(dataset.interface.outputs),
        labelled=functools.partial(_labels_of, dataset),
        extents=Extents(model, dataset.interface) if model is not None and dataset.interface.axes else None,
    )


def _labels_of(dataset: Dataset) -> tuple[Batch, ...]:
    """What the data say of every sample of the validation; read once by a process."""
    key = dataset.digest("validation")
    if key not in _labels:
        _labels[key] = tuple(replace(batch, feeds={}) for batch in dataset.batches("validation", _READ_AT_ONCE))
    return _labels[key]


def output_constraints(dataset: Dataset, model: Model) -> tuple[Constraint, ...]:
    """What every candidate must keep of each output beside the constraints of the experiment.

    Raises:
        ConfigError: as `scorer_of`.
    """
    if dataset.metric is not None or dataset.task != "tensors":
        return ()
    scorer = scorer_of(dataset, model)
    return scorer.limits() if isinstance(scorer, MeaningScorer) else ()
