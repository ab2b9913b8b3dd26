"""From a sweep, or from a finished checkpoint, to the bundle of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.bundle import BundleContents, Origin
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.inputs.dataset.language import windows
from workbench.inputs.experiment import Experiment
from workbench.shipping.golden_prompts import PROMPTS, TOKENS, make_golden_prompts
from workbench.targets.base import Target
from workbench.targets.language import language_target
from workbench.targets.prompted import AnswersPrompts, PromptedModel
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import digest
from workbench.values.errors import BundleError, ConfigError, MeasureError, ToolchainError
from workbench.values.measurement import Split
from workbench.values.results import Evaluation

_SPLITS: tuple[Split, ...] = ("calibration", "validation", "holdout")


def language_contents(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    journal: Journal,
    *,
    artifact: Artifact,
    directory: Path,
    evaluations: tuple[Evaluation, ...],
    baseline: tuple[Evaluation, ...],
    origin: Origin,
) -> BundleContents:
    """What the bundle of a sweep's candidate holds; its golden prompts are the beginnings of validation windows.

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
    model = prompted_model(bench.target(candidate), directory)
    data = experiment.dataset
    texts = [model.text(window.ids[:TOKENS].tolist()) for window in windows(data, "validation")[: 2 * PROMPTS]]
    prompts = make_golden_prompts(model, texts)
    outcomes = journal.outcomes(candidate.id, "holdout")
    confirmed = any(evaluation.split == "holdout" for evaluation in evaluations) and outcomes.exists()
    return BundleContents(
        name=experiment.name,
        about=experiment.about,
        task=data.task,
        candidate=candidate,
        artifact=artifact,
        artifact_directory=directory,
        evaluations=evaluations,
        baseline=baseline,
        model=experiment.model,
        datasets={split: data.digest(split) for split in _SPLITS},
        golden=(),
        prompts=prompts,
        tolerance=prompts.tolerance,
        outcomes=outcomes if confirmed else None,
        outcome_samples_sha256=digest([data.task, data.measure, data.holdout.digest, experiment.model.sha256]),
        origin=origin,
    )


def checkpoint_contents(
    checkpoint: Path, model_folder: Path, target: Target, *, name: str, recipe: Path, texts: Sequence[str]
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
    assert isinstance(target, AnswersPrompts)  # it gave the model
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
        model=language_target(target).read_model(model_folder),
        datasets={},
        golden=(),
        prompts=prompts,
        tolerance=prompts.tolerance,
        extra_files={"recipe.yaml": recipe},
    )


def prompted_model(target: Target, directory: Path) -> PromptedModel:
    """A checkpoint, read by the rules of the engine that serves it.

    Raises:
        BundleError: the engine would refuse it; says why.
        ToolchainError: the target has no way to execute one.
    """
    if not isinstance(target, AnswersPrompts):
        raise ToolchainError(f"Target {target.name!r} cannot execute its checkpoints, so it has no golden prompts.")
    try:
        return target.prompted(directory)
    except MeasureError as error:
        raise BundleError(f"The checkpoint cannot be served: {error}") from error
