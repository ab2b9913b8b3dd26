"""How far the answers of what ships lie from float32, PyTorch and another platform: measured, kept, and read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.api.opening import named_candidate, opened
from workbench.values.errors import ConfigError, ToolchainError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.evaluation.journal import Journal
    from workbench.inputs.experiment import Experiment
    from workbench.values.agreement import Agreements
    from workbench.values.measurement import Split


_MOST_BYTES = 1 << 26


def _silent(step: str, share: float = 0.0) -> None:
    """Tells nobody."""


def measure_agreement(
    experiment: Experiment | Path | str,
    candidate: str,
    *,
    bundle: Path | str | None = None,
    answers: Path | str | None = None,
    checkpoint: Path | str | None = None,
    split: Split = "holdout",
    samples: int | None = None,
    workspace: Path | str | None = None,
    report: Callable[[str, float], None] = _silent,
    command: str = "",
) -> Agreements:
    """The same samples through every way to compute the model, compared pair by pair.

    Where the candidate belongs to the last sweep, the result is kept in its evaluation of that split.

    Args:
        candidate: id or its first digits, 'baseline', or a candidate JSON file; ignored with `bundle`.
        bundle: folder of a bundle of this experiment, whose own files are then what ships; nothing is kept.
        answers: file of another platform's answers (`workbench.inputs.answers`).
        checkpoint: folder of the model in PyTorch; None for the one beside its ONNX file, where there is one.
        samples: of the split, from its first on; None for all of them.
        report: told (what is done, which share of it is over).
        command: the command line that asks for it, kept with what is found.

    Raises:
        ConfigError: no such candidate; answers to other inputs, or to none of these; a checkpoint that is none.
        BundleError: damaged, or made from another model.
        CandidateError: what ships cannot be compiled, opened or run.
    """
    from workbench.bundle import read_bundle
    from workbench.shipping.agreement import Asked, agreement_of_bundle, agreement_of_candidate
    from workbench.shipping.handover import evaluations_of, service_settings

    asked = Asked(
        split=split,
        samples=samples,
        answers=None if answers is None else Path(answers),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        report=report,
    )
    with opened(experiment, workspace) as (question, bench):
        if samples is not None and samples < 1:
            raise ConfigError(f"{samples} is no number of samples.", key="--samples", hint="Write 1 or more.")
        if bundle is not None:
            return replace(agreement_of_bundle(question, read_bundle(Path(bundle)), bench, asked), command=command)
        chosen = named_candidate(candidate, question)
        service = service_settings(chosen, evaluations_of(bench.journal, chosen))
        found = replace(agreement_of_candidate(question, chosen, bench, service, asked), command=command)
        _keep(bench.journal, found, split, report)
        return found


def agreement_of(bundle: Path | str) -> Agreements:
    """What a bundle says of itself.

    Raises:
        ConfigError: nobody measured it.
        BundleError: the bundle is damaged.
    """
    from workbench.bundle import bundle_agreement, read_bundle

    found = bundle_agreement(read_bundle(Path(bundle)))
    if found is None:
        raise ConfigError(
            "says nothing of its agreement: nobody measured it before it was exported.",
            file=bundle,
            hint="Measure it now: workbench agreement BUNDLE --experiment FILE.",
        )
    return found


def read_agreement(file: Path) -> Agreements:
    """What `workbench agreement --to` wrote."""
    from workbench.values.agreement import agreements_from_json
    from workbench.values.documents.json_reader import read_json

    try:
        return agreements_from_json(read_json(file, limit_bytes=_MOST_BYTES))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"is no agreement of this workbench: {error}.", file=file, key="--agreement") from error


def _keep(journal: Journal, found: Agreements, split: Split, report: Callable[[str, float], None]) -> None:
    """In the evaluation of this split, unless a sweep that runs holds the journal."""
    from workbench.evaluation.sweep_folders import exclusive

    evaluation = journal.evaluation(found.candidate_id, split)
    if evaluation is None:
        return
    try:
        with exclusive(journal):
            journal.write(replace(evaluation, agreement=found))
        report(f"kept in the evaluation on {split}", 0.0)
    except ToolchainError as error:
        report(f"not kept in the evaluation: {error}", 0.0)
