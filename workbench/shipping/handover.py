"""From a sweep to a bundle: gather what production needs of one candidate; and from a finished checkpoint of a language
model."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.bundle.bounds import value_fault
from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import Manifest, Tolerance
from workbench.bundle.prompts import MOST_CHARACTERS, MOST_SHARE, GoldenPrompt, GoldenPrompts, KeptStep, kept_step
from workbench.bundle.signing import SecretKey
from workbench.bundle.write import BundleContents, write_bundle
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.journal import Journal
from workbench.evaluation.overflow import overflow_of
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.language import windows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.shipping.deployment import DeploymentSettings, deployment_files
from workbench.targets import described
from workbench.targets.base import INT8_REPLAY, Array, replay_tolerance
from workbench.targets.language import LanguageTarget, Logits, PromptedModel, language_target
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import digest
from workbench.values.errors import BundleError, ConfigError, MeasureError, ToolchainError
from workbench.values.interface import OutputUse
from workbench.values.measurement import Split
from workbench.values.results import Evaluation
from workbench.values.service import ServiceSettings

GOLDEN_BATCHES = 12


def bundle_contents(experiment: Experiment, candidate: Candidate, bench: Bench, journal: Journal) -> BundleContents:
    """Compile the candidate (from the store where it is there), run the golden samples, gather its evaluations.

    Raises:
        ConfigError: the sweep has not measured it in full.
        CandidateError: it cannot be compiled or run any more, or overflows on its device.
        ToolchainError: a file of its evaluations, or of the baseline's, is damaged.
    """
    for damage in journal.damage():
        if damage.candidate_id in (candidate.id, experiment.baseline.id):
            raise ToolchainError(
                f"{candidate.short_id} cannot be handed over: {damage.words()}. Run the sweep again, then this command."
            )
    evaluations = evaluations_of(journal, candidate)
    if not evaluations:
        raise ConfigError(
            f"{candidate.short_id} was not measured in full by the last sweep.",
            key="--candidate",
            hint=f"Its fate: workbench show {experiment.path} --candidate {candidate.short_id}",
        )
    artifact, directory = artifact_of(experiment, candidate, bench)
    if overflow := overflow_of(experiment, candidate, bench):
        raise MeasureError(f"{candidate.short_id} cannot be handed over: {overflow}")
    outcomes = journal.outcomes(candidate.id, "holdout")
    data = experiment.dataset
    alike: dict[str, Any] = {
        "name": experiment.name,
        "about": experiment.about,
        "task": data.task,
        "candidate": candidate,
        "artifact": artifact,
        "artifact_directory": directory,
        "evaluations": evaluations,
        "baseline": evaluations_of(journal, experiment.baseline),
        "model": experiment.model,
        "datasets": {split: data.digest(split) for split in get_args(Split)},
        "outcomes": outcomes if any(e.split == "holdout" for e in evaluations) and outcomes.exists() else None,
    }
    if experiment.model.is_language_model:
        prompts = prompts_of(experiment, candidate, bench, directory)
        scored = digest([data.task, data.measure, data.holdout.digest, experiment.model.sha256])
        return BundleContents(
            **alike, golden=(), prompts=prompts, tolerance=prompts.tolerance, outcome_samples_sha256=scored
        )
    service = service_settings(candidate, evaluations)
    bins = service.sequence_bins or candidate.sequence_bins
    golden = _golden(experiment, candidate, bench, bins)
    largest = max(float(np.abs(array).max(initial=0)) for batch in golden for array in batch.outputs.values())
    share = replay_tolerance(candidate)
    padded = data.with_bins(bins)
    with contextlib.closing(scorer_of(data, experiment.model)) as scorer:
        reference = experiment.model.sha256 if scorer.needs_reference else None
        how = [] if scorer.identity is None else [scorer.identity]
    return BundleContents(
        **alike,
        golden=golden,
        tolerance=Tolerance(absolute=share * largest, relative=share),
        labels=data.labels,
        record=journal.record(candidate.id) if candidate.quantization.calibrated else None,
        preprocessor=padded.preprocessor,
        axes=() if padded.sizing is None else padded.sizing.uses,
        service=service,
        agreement=next((e.agreement for e in reversed(evaluations) if e.agreement is not None), None),
        # two bundles with equal ones were scored alike, on the same samples
        outcome_samples_sha256=digest([data.task, data.labels, data.holdout.digest, reference, *how]),
    )


def hand_over(
    to: Path,
    contents: BundleContents,
    *,
    allow_emulated: bool = False,
    secret: SecretKey | None = None,
    settings: DeploymentSettings | None = None,
) -> Path:
    """Write the bundle that goes to production: `write_bundle` with its deployment files.

    Args:
        secret: signs it; the deployment files then ask for a trusted signature.
        settings: how the deployment files are written; `DeploymentSettings()` where it is not given.

    Raises:
        WorkbenchError: see `write_bundle` and `deployment_files`.
    """
    chosen = replace(settings or DeploymentSettings(), signed=secret is not None)
    engine_files = described(contents.artifact.target).engine_files

    def deployed(manifest: Manifest) -> Mapping[str, str]:
        """The files under deploy/: of our service, or those of the engines that serve such an artifact."""
        if engine_files is None:
            return deployment_files(manifest, chosen)
        return engine_files(contents.artifact_directory, manifest.name)

    return write_bundle(
        to,
        contents,
        allow_emulated=allow_emulated,
        secret=secret,
        deployment=deployed,
    )


def service_settings(candidate: Candidate, evaluations: Sequence[Evaluation]) -> ServiceSettings:
    """The best settings that were found, on holdout if the candidate was confirmed; the closest where none is good.

    Without a search of them: batches as large as the one that was timed, sent as soon as a worker is free.
    """
    for evaluation in sorted(evaluations, key=lambda e: e.split != "holdout"):
        service = evaluation.measurement.service
        if service is not None:
            return (service.best or service.closest).settings
    return ServiceSettings(max_batch_size=candidate.serving.batch)


def evaluations_of(journal: Journal, candidate: Candidate) -> tuple[Evaluation, ...]:
    """What the sweep measured of it in full: on validation, and on holdout where it was confirmed."""
    found = (journal.evaluation(candidate.id, split) for split in ("validation", "holdout"))
    return tuple(e for e in found if e is not None and e.status == "complete")


def _golden(
    experiment: Experiment, candidate: Candidate, bench: Bench, bins: tuple[int, ...] | None
) -> tuple[GoldenBatch, ...]:
    """The first batches of the (shuffled) validation split, and what this very artifact gives for them."""
    artifact, directory = artifact_of(experiment, candidate, bench)
    batch_size = candidate.serving.batch
    data = experiment.dataset.with_bins(bins)
    batches = _fed_batches(data, experiment, batch_size)
    session = bench.target(candidate).open(artifact, directory, candidate)
    try:
        found = [session.run(batch.feeds) for batch in batches]
    finally:
        session.close()
    kept = comparable(found, data.interface.outputs)
    texts = data.texts("validation")
    return tuple(
        GoldenBatch(
            feeds=batch.feeds,
            outputs={name: outputs[name] for name in kept},
            texts=() if texts is None else tuple(texts[int(row)] for row in batch.indices),
        )
        for batch, outputs in zip(batches, found, strict=True)
    )


def comparable(found: Sequence[Mapping[str, Array]], uses: Sequence[OutputUse]) -> tuple[str, ...]:
    """Outputs that a replay is held against: no texts, and nothing that is ignored because it is not finite."""
    ignored = {use.name for use in uses if use.meaning == "ignored"}
    return tuple(
        name
        for name, first in found[0].items()
        if first.dtype.kind in "fiub" and (name not in ignored or all(np.isfinite(one[name]).all() for one in found))
    )


def _fed_batches(data: Dataset, experiment: Experiment, rows: int) -> list[Batch]:
    """Batches that the model is fed as they are: single steps where it carries a state."""
    if not data.interface.state:
        return list(data.batches("validation", rows, stop=GOLDEN_BATCHES * rows))
    feeds = calibration_feeds(data, experiment.model, batch=rows, samples=GOLDEN_BATCHES * rows, split="validation")
    nobody = np.zeros(0, dtype=np.int64)
    return [Batch(feeds=one, targets=None, indices=nobody) for one in itertools.islice(feeds, GOLDEN_BATCHES)]


# --- a language model ------------------------------------------------------------------------------------------------


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
