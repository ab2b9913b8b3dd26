"""From what outputs mean to their judges, and what each meaning asks where the manifest says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workbench.inputs.metrics.agreement.decisions import LogitsJudge, ProbabilitiesJudge
from workbench.inputs.metrics.agreement.detections import DetectionsJudge
from workbench.inputs.metrics.agreement.judge import Judge
from workbench.inputs.metrics.agreement.labelled import AGAINST, LabelledJudge
from workbench.inputs.metrics.agreement.masks import MaskJudge
from workbench.inputs.metrics.agreement.sequences import IdsJudge
from workbench.inputs.metrics.agreement.signals import SignalJudge
from workbench.inputs.metrics.agreement.vectors import EmbeddingJudge, ValuesJudge
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
    """Fresh judges in the order of the uses, but states last: they only inform, and keep their limits.

    Raises:
        ConfigError: nothing is left to judge, scores belong to no boxes, or an output's metric has no such limit.
    """
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
