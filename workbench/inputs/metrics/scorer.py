"""How a dataset's samples are scored: the one thing that the evaluation knows of tasks, metrics and outputs.

    scorer = scorer_of(dataset, model)
    outcomes = scorer.score(session.run(batch.feeds), batch, reference)

A scorer belongs to one pass of one model over a split: it is given consecutive batches from the first sample on, and
may remember what it saw (a rank among samples needs the samples before).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from workbench.graph.read import load_graph
from workbench.graph.structure import handed_through
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics.agreement import MEANINGS
from workbench.inputs.metrics.extents import Extents
from workbench.inputs.metrics.inference import PASSED, InferredOutput, infer_outputs
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import Outcomes, primary_metric
from workbench.inputs.metrics.retrieval_scorer import RetrievalScorer
from workbench.inputs.metrics.score import Outputs, Scorer, check_outputs, outcomes_of
from workbench.inputs.metrics.user_scorer import UserScorer
from workbench.values.errors import ConfigError
from workbench.values.interface import OutputUse
from workbench.values.model import Model
from workbench.values.objectives import Constraint


def uses_of(dataset: Dataset, model: Model | None) -> tuple[OutputUse, ...]:
    """Every output, those of the manifest first and in its order; what was inferred has its reason.

    An output that no candidate can change judges nothing, whatever the manifest says it means.
    """
    declared = dataset.interface.outputs
    if model is None:
        return declared
    passed = passed_outputs(model)
    if passed and passed.issuperset(spec.name for spec in model.outputs):
        rule = f"every output ({', '.join(sorted(passed))}) {PASSED}."
        raise ConfigError(rule, file=dataset.path, key="outputs", hint="Export the model with what it computes.")
    declared = tuple(
        OutputUse(name=use.name, meaning="ignored", reason=PASSED)
        if use.name in passed and use.meaning not in ("ignored", "state")
        else use
        for use in declared
    )
    named = {use.name for use in declared}
    missing = [spec.name for spec in model.outputs if spec.name not in named]
    if not missing:
        return declared
    found = {one.name: one for one in _inferred(model, dataset.interface.state) if one.name in missing}
    if not declared and "logits" in missing:  # what such a model is scored by; what nobody can name beside it informs
        found = {"logits": found.pop("logits"), **found}
        for name, one in found.items():
            if one.use is None:
                reason = f"{one.reason}: compared as values beside the logits, without a limit"
                use = OutputUse(name=name, meaning="values", options=(("limited", False),), reason=reason)
                found[name] = replace(one, use=use)
    for name in (str(value) for use in declared for key, value in use.options if key in ("scores", "labels")):
        if name in found:  # scores that a manifest's boxes refer to need no line of their own
            use = OutputUse(name=name, meaning="scores", reason="the manifest's boxes refer to it")
            found[name] = replace(found[name], use=use)
    unknown = [one for one in found.values() if one.use is None]
    if unknown:
        boxes = "{meaning: boxes, scores: SCORES, format: xyxy, score: 0.5, iou: 0.5}"
        likeliest = {one.name: boxes if one.candidates[0] == "boxes" else one.candidates[0] for one in unknown}
        written = ", ".join(f"{name}: {meaning}" for name, meaning in likeliest.items())
        others = sorted({meaning for one in unknown for meaning in one.candidates[1:]} | {"ignored"})
        raise ConfigError(
            f"nothing tells what the output {unknown[0].name!r} means: {unknown[0].reason}.",
            file=dataset.path,
            key="outputs",
            hint=f"Write outputs: {{{written}}} (or {', '.join(others)}), or let `workbench init` look at its values.",
        )
    return (*declared, *(one.use for one in found.values() if one.use is not None))


def not_by_distance(dataset: Dataset) -> frozenset[str]:
    """Outputs that a manifest gives a meaning in which distance means nothing: ids, waveforms, what is ignored.

    A model of speech may shift a waveform by a few samples: heard as the same, and far in a cosine.
    """
    return frozenset(use.name for use in dataset.interface.outputs if use.meaning in ("ids", "signal", "ignored"))


@functools.lru_cache(maxsize=8)
def passed_outputs(model: Model) -> frozenset[str]:
    """Outputs that no candidate can change."""
    return frozenset() if model.is_language_model else handed_through(load_graph(model))


@functools.lru_cache(maxsize=8)
def _inferred(model: Model, state: tuple[tuple[str, str], ...]) -> tuple[InferredOutput, ...]:
    return infer_outputs(model, load_graph(model), state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScorer(Scorer):
    """By the task alone: classes and tags against labels."""

    data: Dataset

    @property
    def primary(self) -> str:
        return primary_metric(self.data.task)

    def check(self, model: Model) -> None:
        check_outputs(self.data.task, self.data.labels, model)

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> Outcomes:
        return outcomes_of(self.data.task, outputs, batch, labels=self.data.labels)


def scorer_of(dataset: Dataset, model: Model | None) -> Scorer:
    """A fresh scorer for one pass over a split.

    Args:
        model: the float model, for what it says of its outputs; None where only a compiled one is at hand.
    """
    if dataset.metric is not None:
        return UserScorer(dataset.metric, dataset)
    if dataset.task != "tensors":
        return TaskScorer(data=dataset)
    if dataset.retrieval is not None:
        return RetrievalScorer(dataset.retrieval, dataset.path)
    return MeaningScorer(
        uses=uses_of(dataset, model),
        file=dataset.path,
        declared=bool(dataset.interface.outputs),
        extents=Extents(model, dataset.interface) if model is not None and dataset.interface.axes else None,
    )


def output_constraints(dataset: Dataset, model: Model) -> tuple[Constraint, ...]:
    """What every candidate must keep of each output beside the constraints of the experiment."""
    scorer = scorer_of(dataset, model)
    return scorer.limits() if isinstance(scorer, MeaningScorer) else ()


def scoring_words(dataset: Dataset, model: Model) -> tuple[str, ...]:
    """A sentence for the primary metric, one for each output, and one for the limits beside the experiment's.

    Nothing where labels decide: that needs no words.
    """
    scorer = scorer_of(dataset, model)
    if not isinstance(scorer, MeaningScorer):
        return ()
    spec = scorer.specs[0]
    unit = f", in {spec.unit}" if spec.unit else ""
    better = "" if spec.higher else ", less is better"
    found = [f"accuracy is {spec.name}{unit}{better}: {spec.about}"]
    found += [f"output {use.name!r} is taken as {use.meaning}: {use.reason}" for use in scorer.uses if use.reason]
    limits = ", ".join(map(str, scorer.limits()))
    return (*found, *([f"every candidate must keep {limits}"] if limits else []))


def usual_loss(scorer: Scorer) -> float | None:
    """How far the primary metric may be from that of two equal models, by the limits of its output's meaning; in its
    own unit, a share where it has none. None where no limit is usual.

    A metric that has no limit of its own (F1 beside recall and precision) has that of the others.
    """
    if not isinstance(scorer, MeaningScorer):
        return None
    judge, order = scorer.judges[0], scorer.order[0]
    first, limits = judge.metrics[order[0]], MEANINGS[judge.use.meaning].limits
    specs = {spec.name: spec for spec in judge.metrics}
    alike = {name: limit for name, limit in limits.items() if name in specs and specs[name].unit == first.unit}
    losses = {name: abs(specs[name].best - limit) for name, limit in alike.items()}
    return losses.get(first.name, max(losses.values(), default=None))


def counted_in_a_sample(scorer: Scorer, runs: Iterable[tuple[Batch, Outputs]]) -> float | None:
    """Things of one weight that the primary metric counts, in the mean over these samples; None where it counts none.

    Args:
        runs: of the float model.
    """
    if not isinstance(scorer, MeaningScorer) or not scorer.specs[0].counts:
        return None
    weights = [scorer.score(outputs, batch, outputs).denominators[:, 0] for batch, outputs in runs]
    return float(np.concatenate(weights).mean()) if weights else None
