"""From a sweep, or from a finished checkpoint, to the bundle of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.bundle.bounds import value_fault
from workbench.bundle.manifest import Tolerance
from workbench.bundle.prompts import MOST_CHARACTERS, MOST_SHARE, GoldenPrompt, GoldenPrompts, KeptStep, kept_step
from workbench.bundle.write import BundleContents
from workbench.evaluation.bench import Bench
from workbench.inputs.dataset.language import windows
from workbench.inputs.experiment import Experiment
from workbench.targets.base import INT8_REPLAY
from workbench.targets.language import LanguageTarget, Logits, PromptedModel, language_target
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import BundleError, ConfigError, MeasureError


def prompts_of(experiment: Experiment, candidate: Candidate, bench: Bench, directory: Path) -> GoldenPrompts:
    """The golden prompts of a sweep's candidate: the beginnings of validation windows.

    Args:
        directory: of its checkpoint.

    Raises:
        ConfigError: the candidate is the float model.
        BundleError: the engine that serves such checkpoints would refuse it.
    """
    if candidate.quantization.scheme == "none":
        raise ConfigError(
            f"{candidate.short_id} is the float model as it was: its folder is all that an engine needs.",
            key="--candidate",
            hint="Name a quantized candidate.",
        )
    model = prompted_model(language_target(bench.target(candidate)), directory)
    found = windows(experiment.dataset, "validation")[: 2 * PROMPTS]
    return make_golden_prompts(model, [model.text(window.ids[:TOKENS].tolist()) for window in found])


def checkpoint_contents(
    checkpoint: Path, model_folder: Path, target: LanguageTarget, *, name: str, recipe: Path, texts: Sequence[str]
) -> BundleContents:
    """What the bundle of a finished checkpoint holds, ours or the vendor's tool's: nothing was measured of it.

    Args:
        model_folder: the float model that it was made from.
        recipe: the quantizer's YAML that it was made by.
        texts: whose beginnings become golden prompts.

    Raises:
        ConfigError: the model's folder or the recipe cannot be read, or no text can be a prompt.
        BundleError: the engine that serves such checkpoints would refuse it.
    """
    model = prompted_model(target, checkpoint)
    prompts = make_golden_prompts(model, texts)
    text = recipe.read_text(encoding="utf-8")
    return BundleContents(
        name=name,
        task="language",
        candidate=Candidate(target=target.name, quantization=Quantization(scheme="cfg", cfg=text)),
        artifact=target.finished(checkpoint),
        artifact_directory=checkpoint,
        evaluations=(),
        baseline=(),
        model=target.read_model(model_folder),
        datasets={},
        golden=(),
        prompts=prompts,
        tolerance=prompts.tolerance,
        extra_files={"recipe.yaml": recipe},
    )


def prompted_model(target: LanguageTarget, directory: Path) -> PromptedModel:
    """A checkpoint, read by the rules of the engine that serves it.

    Raises:
        BundleError: the engine would refuse it; says why.
    """
    try:
        return target.prompted(directory)
    except MeasureError as error:
        raise BundleError(f"The checkpoint cannot be served: {error}") from error


PROMPTS, TOKENS, ANSWER, TOP = 8, 64, 8, 20
"""How many prompts, of how many tokens at most, answers of how many, and ids kept with each token of an answer: as many
as vLLM's `--max-logprobs` gives where it is not said."""
MARGIN = 2.0
"""Of the tolerance over the largest difference measured here [chosen: a card orders its sums in a third way]."""


def make_golden_prompts(
    model: PromptedModel, texts: Sequence[str], *, tokens: int = TOKENS, answer: int = ANSWER
) -> GoldenPrompts:
    """The first tokens of the first texts that can be kept, and what the checkpoint answers to them.

    Args:
        texts: those of one token are left out, and those with characters that would move a terminal's cursor.

    Raises:
        ConfigError: no text can be kept, or the context holds no answer.
        BundleError: a logit is not finite.
        MeasureError: the checkpoint cannot be executed.
    """
    room = min(tokens, model.context - answer)
    if room < 1:
        raise ConfigError(f"an answer of {answer} tokens leaves no room for a prompt in a context of {model.context}.")
    chosen = [t for t in texts if t.strip() and len(t) <= MOST_CHARACTERS and not value_fault(t, "text")]
    found = [(text, ids[:room]) for text in chosen[: 4 * PROMPTS] if len(ids := model.ids(text)) > 1][:PROMPTS]
    if not found:
        raise ConfigError("no text can be a golden prompt.", hint="Give texts of more than one token.")
    asked = [ids for _, ids in found]
    steps: list[list[KeptStep]] = [[] for _ in found]

    def keep(prompt: int, token: int, logits: Logits) -> None:
        if not np.isfinite(logits).all():
            raise BundleError(f"A logit of golden prompt {prompt} is not finite; such a model must not be served.")
        steps[prompt].append(kept_step(logits, min(TOP, len(logits))))

    answers = model.answers(asked, answer, keep)
    largest, ways = _measured(model, asked, answers, steps)
    highest = max(abs(each) for kept in steps for step in kept for each in step.logits)
    wanted = max(INT8_REPLAY * highest, MARGIN * largest)
    allowed = min(wanted, MOST_SHARE * highest)
    return GoldenPrompts(
        vocabulary=model.vocabulary,
        tolerance=Tolerance(absolute=allowed, relative=INT8_REPLAY),
        tolerance_source=_source(highest, largest),
        largest_measured=largest,
        ways=ways,
        device=model.device_words,
        prompts=tuple(
            GoldenPrompt(
                text=text,
                ids=tuple(ids),
                answer=tuple(said),
                answer_text="".join("\ufffd" if value_fault(c, "text") else c for c in model.text(said)),
                steps=tuple(kept),
            )
            for (text, ids), said, kept in zip(found, answers, steps, strict=True)
        ),
    )


def _source(highest: float, largest: float) -> str:
    """Where the absolute part of a tolerance is from."""
    if MARGIN * largest > MOST_SHARE * highest:
        said = f"{MOST_SHARE:g} of the largest logit, the most that is allowed: it differs by more from way to way"
    elif MARGIN * largest > INT8_REPLAY * highest:
        said = f"{MARGIN:g} times what was measured"
    else:
        said = f"{INT8_REPLAY:g} of the largest logit [inferred: what replays of other targets are allowed]"
    return f"{said}; measured: {largest:.3g} between ways to execute it on this processor, on a device nothing"


def _measured(
    model: PromptedModel, asked: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], kept: list[list[KeptStep]]
) -> tuple[float, tuple[str, ...]]:
    """The largest difference of a kept logit between the ways to execute the checkpoint, and their names."""
    largest = 0.0

    def compare(prompt: int, token: int, logits: Logits) -> None:
        nonlocal largest
        step = kept[prompt][token]
        here = logits[list(step.ids)].astype(np.float64)
        largest = max(largest, float(np.abs(here - np.array(step.logits)).max()))

    ways = model.ways()
    for way in ways.values():
        way.answers(asked, len(answers[0]), compare, given=answers)
    return largest, tuple(ways)
