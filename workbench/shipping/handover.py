"""From a sweep to a bundle: gather what production needs of one candidate."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import Manifest, Tolerance
from workbench.bundle.signing import SecretKey
from workbench.bundle.write import BundleContents, write_bundle
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.journal import Journal
from workbench.evaluation.overflow import overflow_of
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.shipping.deployment import DeploymentSettings, deployment_files
from workbench.shipping.language_handover import prompts_of
from workbench.targets import described
from workbench.targets.base import Array, replay_tolerance
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, MeasureError, ToolchainError
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
