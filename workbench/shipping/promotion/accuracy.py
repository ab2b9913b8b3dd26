"""Accuracy of two bundles, sample by sample: by the holdout outcomes they bring along, or freshly scored."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from workbench.bundle.golden import preprocessor_of, read_npz
from workbench.bundle.manifest import HoldoutOutcomes, Manifest
from workbench.bundle.opened import Bundle
from workbench.evaluation.carried import whole_samples
from workbench.inputs.dataset import Dataset
from workbench.inputs.dataset.text import TextRows
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.outcomes import Outcomes, concatenate, load_outcomes, per_sample, size
from workbench.shipping.promotion.verdict import Check, Limits, checked
from workbench.targets import open_target
from workbench.values.errors import BundleError, ConfigError, MeasureError
from workbench.values.measurement import AccuracyComparison
from workbench.values.sequential import Gate, decide
from workbench.values.significance import compare

NAME = "accuracy"


def accuracy_check(new: Bundle, old: Bundle, limits: Limits, holdout: Dataset | None) -> Check:
    """The paired test of the two: the drop is held against the limit, and with `require_proof` all of its interval.

    Args:
        holdout: score both afresh on the holdout split of these data; None for the outcomes in the bundles.

    Raises:
        ConfigError: these data cannot be scored with these bundles.
        BundleError: a bundle does not run here, or its outcomes cannot be read.
    """
    if holdout is not None:
        theirs, ours = rescored(old, holdout), rescored(new, holdout)
        source = "scored afresh"
    else:
        mine, others = new.manifest.outcomes, old.manifest.outcomes
        if mine is None or others is None:
            which = "this bundle" if mine is None else "the current bundle"
            return _failed(f"{which} brings no holdout outcomes along; score both afresh with --experiment", limits)
        if mine.samples_sha256 != others.samples_sha256:
            return _failed("their holdout outcomes are of other samples; score both afresh with --experiment", limits)
        ours, theirs = _stored(new, mine), _stored(old, others)
        source = "outcomes kept in the bundles"
    try:
        seen = compare(per_sample(theirs), per_sample(ours))
    except ValueError as error:
        return _failed(f"they cannot be paired: {error}", limits)
    words = f"on {size(ours)} holdout samples ({source}; {seen.test}, p = {seen.p_value:.2g})"
    return _judged(NAME, seen, words, limits, size(ours))


def float_check(manifest: Manifest, limits: Limits, *, first: bool = True) -> Check:
    """Against its own float model, which its confirmation compared it with: the reference stays while champions change,
    so that small losses of several releases cannot add up unseen.

    Args:
        first: there is no current bundle: then it must have been compared, and with `require_proof` be proven.
    """
    name, limit = f"{NAME} against float", limits.max_loss_pp
    limits = limits if first else replace(limits, require_proof=False)
    found = next((e for e in manifest.evaluations if e.split == "holdout"), None)
    accuracy = found.measurement.accuracy if found is not None else None
    if accuracy is None:
        why = "it was not confirmed on holdout; confirm it by `workbench sweep`, export it again"
        if first:
            return _failed(why, limits, name)
        return checked(name, None, f"losses of several releases could add up unseen: {why}")
    if accuracy.comparison is None:
        return checked(name, True, "it is the float model", figure=0.0, limit=limit, unit="pp", proven=True)
    return _judged(name, accuracy.comparison, f"on {accuracy.samples} holdout samples", limits, accuracy.samples)


def _judged(name: str, seen: AccuracyComparison, words: str, limits: Limits, samples: int) -> Check:
    drop, unit = seen.drop_pp, seen.unit
    limit = limits.max_loss_pp if seen.is_share else limits.max_loss
    reason = f"{drop.value:+.2f} {unit} lost [{drop.low:.2f}, {drop.high:.2f}] {words}"
    if limit is None:
        reason += f"; say how much may be lost, in {unit}: --max-loss NUMBER"
        return checked(name, False, reason, figure=drop.value, unit=unit, interval=drop)
    decision, proven = decide(Gate.around(limit, limits.zone), drop, samples=samples, unit=unit), drop.high <= limit
    reason += f"; {decision}"
    if limits.require_proof and drop.value <= limit and not proven:
        reason += f"; so few samples cannot exclude a loss over {limit:g} {unit}, and proof was asked for "
        reason += "(--require-proof): score on more of them with --experiment"
    passed = proven or (decision.keeps and not limits.require_proof)
    return checked(name, passed, reason, figure=drop.value, limit=limit, unit=unit, interval=drop, proven=proven)


def _failed(reason: str, limits: Limits, name: str = NAME) -> Check:
    return checked(name, False, reason, limit=limits.max_loss_pp, unit="pp")


def rescored(bundle: Bundle, data: Dataset) -> Outcomes:
    """Run a bundle over the holdout split, with its own tokenizer and bins.

    Raises:
        ConfigError: the data's task or labels are not the bundle's, or it is scored against another model's outputs.
        BundleError: it does not run here.
    """
    manifest = bundle.manifest
    by_meaning = data.task == "tensors" and data.metric is None
    scorer = None if by_meaning else scorer_of(data, None)
    if scorer is None or scorer.needs_reference:
        raise ConfigError(
            "its outputs are compared with a float model's, which a bundle does not hold.",
            key="--experiment",
            hint="Compare by the outcomes kept in the bundles: leave --experiment out.",
        )
    if (data.task, data.labels) != (manifest.task, manifest.labels):
        raise ConfigError(
            f"its task and labels are not those of {bundle.directory}.",
            key="--experiment",
            hint="Name the experiment that the bundle was exported from, or one over the same labels.",
        )
    preprocessor, rows = preprocessor_of(bundle), data.holdout
    if preprocessor is not None and isinstance(rows.source, TextRows):
        rows = replace(rows, source=replace(rows.source, preprocessor=preprocessor))
    prepared = replace(data, holdout=rows)
    bundle.check_model()
    try:
        session = open_target(manifest.artifact.target).open(
            manifest.artifact, bundle.model_directory, manifest.candidate
        )
        session = whole_samples(session, data.interface, bundle.float_model)
        with contextlib.closing(session), contextlib.closing(scorer):
            return concatenate(
                [
                    scorer.score(session.run(batch.feeds), batch, None)
                    for batch in prepared.batches("holdout", manifest.candidate.serving.batch)
                ]
            )
    except MeasureError as error:
        raise BundleError(f"{bundle.directory}: cannot be scored: {error}") from error


def _stored(bundle: Bundle, kept: HoldoutOutcomes) -> Outcomes:
    try:
        read_npz(bundle.read(kept.file))  # bounds, before NumPy allocates what a header asks for
        return load_outcomes(bundle.file(kept.file))
    except ValueError as error:
        raise BundleError(f"{bundle.directory}: {error}") from error
