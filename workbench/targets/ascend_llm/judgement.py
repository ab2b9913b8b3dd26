"""What judging a float model's checkpoints finds, as values: measured on texts, read from files, or modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.quantization.llm.choices import ChoiceComparison
from workbench.quantization.llm.continuations import AnswerAgreement
from workbench.quantization.llm.differences import TextComparison
from workbench.quantization.llm.forwards import Stage
from workbench.targets.ascend_llm.roofline import ServedShape, ServedSize
from workbench.values.measurement import Estimate

FLOAT = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """What serving a model would take.

    Attributes:
        disk_bytes: of its weight files, as they are.
        size: of one card's memory, by shapes and types.
        prefill_ms, decode_ms: modelled.
        prefill_ratio, decode_ratio: over the float model's times, clock by clock, modelled; None of the float model.
    """

    disk_bytes: int
    size: ServedSize
    prefill_ms: Estimate
    decode_ms: Estimate
    prefill_ratio: Estimate | None = None
    decode_ratio: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedModel:
    """The float model, or one checkpoint.

    Attributes:
        types: type → how many linears of the blocks have it.
        text: against float, on the windows that it was judged on; None where no text was given.
        stopped: why it was not judged on all windows, in words; empty where it was.
        answers: of greedy continuations of prompts.
        notes: what an engine would not do with it, in sentences.
    """

    name: str
    folder: Path
    types: Mapping[str, int]
    quantized_cache: bool
    figures: ServedFigures
    text: TextComparison | None = None
    stopped: str = ""
    choices: ChoiceComparison | None = None
    answers: AnswerAgreement | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Attributes:
    first, second: names of models.
    estimate: the first's figure less the second's, with an interval that holds at once with those of all other pairs.
    """

    first: str
    second: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Which models the windows or questions cannot tell apart, all pairs at once with 95 %.

    Attributes:
        names: the float model first where it takes part; models that were stopped early do not.
        alike: [names, names].
    differences: of every pair; none of a single window.
    """

    names: tuple[str, ...]
    alike: tuple[tuple[bool, ...], ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Attributes:
    checkpoints: in the order in which they were given.
    stage: whose arithmetic the windows took.
    perplexity: who cannot be told apart in the logarithm of perplexity; None with no text.
    kl: likewise in KL, in nats a token, without the float model.
    accuracy: likewise in the share of right answers to questions.
    chance: the share of questions that guessing gets right; None without questions.
    float_accuracy: with its interval for other questions of the kind; likewise.
    shape, clock: what the modelled times are of.
    """

    model: JudgedModel
    checkpoints: tuple[JudgedModel, ...]
    window: int
    stride: int
    windows: int
    predictions: int
    stage: Stage
    perplexity: Alike | None
    kl: Alike | None
    accuracy: Alike | None
    chance: float | None
    float_accuracy: Estimate | None
    shape: ServedShape
    clock: str
    notes: tuple[str, ...] = ()
