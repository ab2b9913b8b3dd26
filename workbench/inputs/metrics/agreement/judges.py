"""From what outputs mean to their judges, and what each meaning asks where the manifest says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.decisions import IdsJudge, LogitsJudge, MaskJudge, ProbabilitiesJudge
from workbench.inputs.metrics.agreement.detections import DetectionsJudge
from workbench.inputs.metrics.agreement.judge import Fractions, Judge, MetricSpec, Outputs
from workbench.inputs.metrics.agreement.vectors import EmbeddingJudge, SignalJudge, ValuesJudge
from workbench.values.errors import ConfigError
from workbench.values.interface import Meaning, OutputUse


@dataclass(frozen=True, slots=True, kw_only=True)
class MeaningRules:
    """What belongs to one meaning.

    Attributes:
        make: None for outputs that are judged with another one (scores with boxes) or not at all.
        options: names that the manifest may give.
        limits: metric → the worst value of an output beside the primary one, where the manifest gives no limits.
    """

    make: Callable[..., Judge] | None
    options: tuple[str, ...] = ()
    limits: Mapping[str, float]


_BOXES = (
    *("scores", "labels", "format", "score", "iou", "match", "axis", "activation", "background"),
    *("score_column", "class_column", "label_column"),
)
MEANINGS: Mapping[Meaning, MeaningRules] = {
    "logits": MeaningRules(make=LogitsJudge, limits={"top1_agreement": 0.98}),
    "probabilities": MeaningRules(
        make=ProbabilitiesJudge, options=("threshold",), limits={"decision_agreement": 0.98, "mean_dp": 0.02}
    ),
    "ids": MeaningRules(make=IdsJudge, options=("end", "pad"), limits={"exact_match": 0.95}),
    "boxes": MeaningRules(make=DetectionsJudge, options=_BOXES, limits={"recall": 0.95, "precision": 0.95}),
    "scores": MeaningRules(make=None, limits={}),
    "mask": MeaningRules(make=MaskJudge, options=("threshold", "axis"), limits={"iou": 0.95}),
    "signal": MeaningRules(make=SignalJudge, options=("rate",), limits={"log_mel": 3.0}),
    "embedding": MeaningRules(make=EmbeddingJudge, options=("k",), limits={"cosine": 0.98}),
    "values": MeaningRules(make=ValuesJudge, limits={"relative_error": 0.1}),
    "state": MeaningRules(make=ValuesJudge, limits={"cosine": 0.95}),
    "ignored": MeaningRules(make=None, limits={}),
}
"""Their limits are rules of thumb, said in `plan` and on screen: 98 of 100 decisions, detections at 0.95, 3 dB."""


def judges_of(uses: Sequence[OutputUse]) -> tuple[Judge, ...]:
    """Fresh judges in the order of the uses, but states last: they only inform, and keep their limits."""
    first = [use for use in uses if use.meaning != "state"]
    states = [use for use in uses if use.meaning == "state"]
    judges: list[Judge] = []
    for use in (*first, *states):
        make = MEANINGS[use.meaning].make
        if make is not None:
            judge = make(use=use)
            judges.append(LabelledJudge(judge) if AGAINST in dict(use.options) else judge)
    if not any(judge.use.meaning != "state" for judge in judges):
        raise ConfigError(
            "no output is compared: all are ignored, states, or scores without boxes.",
            key="outputs",
            hint="Give one of them a meaning, such as OUTPUT: probabilities.",
        )
    named = {name for judge in judges for name in judge.reads}
    for use in uses:
        if use.meaning == "scores" and use.name not in named:
            raise ConfigError(
                f"no boxes use the scores {use.name!r}.",
                key=f"outputs.{use.name}",
                hint=f"Write outputs: {{BOXES: {{meaning: boxes, scores: {use.name}}}}}; or probabilities, or logits.",
            )
    return tuple(judges)


AGAINST = "against"
"""Option of an output: its labels, `labels`, or `labels.KEY` where the data say several things of a sample."""
FLOAT = "float_"
"""Before the name of a metric that compares with the float model, where its own name is that against labels."""


class LabelledJudge(Judge):
    """Another judge's metrics twice: against the labels, which lead, and against the float model."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(use=judge.use)
        self._judge = judge
        self._key = _key(judge.use)
        if not judge.label_metrics:
            raise ConfigError(
                f"{judge.use.meaning} cannot be compared with labels.",
                key=f"outputs.{judge.use.name}.{AGAINST}",
                hint="Leave it out, or write a metric of your own: metric: file.py:function.",
            )

    @property
    def reads(self) -> tuple[str, ...]:
        return self._judge.reads

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            *self._judge.label_metrics,
            *(replace(spec, name=FLOAT + spec.name) for spec in self._judge.specs(whose)),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        right, right_of = self._judge.labelled(outputs, self._labels(batch), batch)
        same, same_of = self._judge.judge(outputs, reference, batch)
        return np.concatenate([right, same], axis=1), np.concatenate([right_of, same_of], axis=1)

    def check(self, batch: Batch) -> None:
        """Raises ConfigError where a sample of the batch has no label, or none of this meaning's."""
        for sample, label in zip(batch.indices.tolist(), self._labels(batch), strict=True):
            self._judge.check_label(label, sample)

    def _labels(self, batch: Batch) -> list[Any]:
        """What the data say of each sample."""
        found = []
        for sample, truth in zip(batch.indices.tolist(), batch.truths or [None] * len(batch), strict=True):
            label = truth
            if self._key and truth is not None:
                if not isinstance(truth, Mapping) or self._key not in truth:
                    given = ", ".join(map(str, truth)) if isinstance(truth, Mapping) else "one value"
                    raise self.no_label(sample, f"has no {self._key!r}; it has {given}")
                label = truth[self._key]
            if label is None:
                raise self.no_label(sample, "is missing")
            found.append(label)
        return found


def _key(use: OutputUse) -> str:
    """Of a sample's labels that part which belongs to the output; empty where they are all its own."""
    told = dict(use.options)[AGAINST]
    first, _, key = str(told).partition(".")
    if first != "labels" or (not key and str(told) != "labels"):
        raise ConfigError(
            f"{told!r} does not say where labels are.",
            key=f"outputs.{use.name}.{AGAINST}",
            hint="Write labels, or labels.KEY where there are several.",
        )
    return key
