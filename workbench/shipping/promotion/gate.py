"""The gate itself: every question in order, cheap ones first."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from workbench.bundle.fingerprint import Policy, admit
from workbench.bundle.manifest import Manifest
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.signing import TrustedKeys
from workbench.bundle.verify import verify_bundle
from workbench.inputs.dataset import Dataset
from workbench.shipping.promotion.accuracy import NAME, accuracy_check, float_check
from workbench.shipping.promotion.verdict import Check, Limits, LoadRound, Verdict, checked
from workbench.targets import open_target
from workbench.values.errors import BundleError, MeasureError
from workbench.values.measurement import ServiceFigures

LoadOnce = Callable[[Path], ServiceFigures]
"""Serve a bundle, load it, stop it. Raises MeasureError or BundleError where it does not serve."""

_ERRORS, _THROUGHPUT, _P99 = "errors under load", "throughput under load", "P99 under load"


def _not_loaded(why: str) -> list[Check]:
    return [checked(name, None, why) for name in (_ERRORS, _THROUGHPUT, _P99)]


def _load_checks(
    new: Bundle, old: Bundle, limits: Limits, load: LoadOnce, rounds: int
) -> tuple[list[Check], tuple[LoadRound, ...]]:
    """Load both in each round; shares are of figures of one round, and their median is held against the limit. Figures
    that must not be relied on pass nothing."""
    found: list[LoadRound] = []
    for number in range(rounds):
        figures: dict[str, ServiceFigures] = {}
        # whoever comes second meets a warmer machine: each comes first as often
        for name, bundle in (("new", new), ("old", old)) if number % 2 else (("old", old), ("new", new)):
            try:
                figures[name] = load(bundle.directory)
            except (MeasureError, BundleError) as error:
                failed = checked(_ERRORS, False, f"{bundle.directory} does not serve: {error}")
                return [failed, *_not_loaded("a service failed")[1:]], tuple(found)
        found.append(LoadRound(candidate=figures["new"], current=figures["old"]))
    mine, theirs = [r.candidate for r in found], [r.current for r in found]
    errors, asked = sum(f.errors for f in mine), sum(f.requests for f in mine)
    words = f"{errors} of {asked} requests had no success ({mine[0].load})"
    checks = [checked(_ERRORS, not errors, words, figure=float(errors), limit=0.0)]
    doubts = "; ".join(dict.fromkeys(f.note for r in found for f in (r.candidate, r.current) if not f.reliable))
    for name, field, form, unit, limit in (
        (_THROUGHPUT, "throughput_per_s", ".4g", "requests/s", 100 * limits.min_throughput),
        (_P99, "p99_ms", ".3g", "ms", 100 * limits.max_p99_increase),
    ):
        ours, others = ([getattr(f, field).value for f in side] for side in (mine, theirs))
        less = 100 if name == _P99 else 0  # of times the increase
        shares = [100 * own / other - less for own, other in zip(ours, others, strict=True)]
        share = statistics.median(shares)
        words = f"{statistics.median(ours):{form}} against {statistics.median(others):{form}} {unit}; "
        words += f"by round {', '.join(f'{value:.0f}' for value in shares)} %"
        if doubts:
            words += f"; not to be relied on: {doubts}. Load longer (--load-seconds), or on a quieter machine"
        kept = (share <= limit if less else share >= limit) and not doubts
        checks.append(checked(name, kept, words, figure=share, limit=limit, unit="%"))
    return checks, tuple(found)


def evaluate(
    candidate: Path,
    current: Path | None,
    *,
    limits: Limits,
    policy: Policy = "refuse",
    allow_emulated: bool = False,
    holdout: Dataset | None = None,
    load: LoadOnce | None = None,
    rounds: int = 3,
    trusted: TrustedKeys | None = None,
) -> Verdict:
    """Ask every question; the load, which takes minutes, only when all others came out well.

    Args:
        current: None for the first promotion: then nothing is compared but the candidate with its own float model.
        holdout: score both bundles afresh on the holdout split of these data.
        load: None not to load at all.
        rounds: of the load, each of both bundles.
        trusted: whose signature both bundles must carry, since both are run; None for none.

    Raises:
        BundleError: one of the two is no bundle.
        ConfigError: these data cannot be scored with these bundles.
        ToolchainError: the machine cannot run them.
    """
    new, old = read_bundle(candidate), read_bundle(current) if current is not None else None
    checks = [_sound("sound", new, trusted)]
    if old is not None:
        checks.append(_sound("current is sound", old, trusted))
    found: tuple[LoadRound, ...] = ()
    if all(check.outcome == "passed" for check in checks):
        checks += [_emulated(new, old, allow_emulated), _toolchain(new, policy)]
        if old is not None:
            same = _answers(new.manifest, old.manifest)
            paired = same.outcome == "passed"
            unpaired = checked(NAME, None, "they answer different questions")
            checks += [same, accuracy_check(new, old, limits, holdout) if paired else unpaired]
        checks.append(float_check(new.manifest, limits, first=old is None))
        checks.append(_size(new, old, limits))
        why = _why_no_load(checks, new, old, load)
        if why or old is None or load is None:
            checks += _not_loaded(why)
        else:
            loading, found = _load_checks(new, old, limits, load, rounds)
            checks += loading
    return Verdict(
        name=new.manifest.name,
        candidate=new.manifest_sha256,
        current=None if old is None else old.manifest_sha256,
        limits=limits,
        checks=tuple(checks),
        rounds=found,
    )


def _why_no_load(checks: list[Check], new: Bundle, old: Bundle | None, load: LoadOnce | None) -> str:
    if any(check.outcome == "failed" for check in checks):
        return "a check before it failed"
    if old is None:
        return "nothing to compare it with"
    if not new.served_here:
        return "an engine of others serves it: load that with workbench load --protocol openai"
    if load is None:
        return "not asked for (--no-load)"
    return (
        "the device is emulated: its times on this host mean nothing" if _is_emulated(new) or _is_emulated(old) else ""
    )


def _sound(name: str, bundle: Bundle, trusted: TrustedKeys | None) -> Check:
    try:
        return checked(name, True, verify_bundle(bundle.directory, trusted=trusted).summary)
    except BundleError as error:
        return checked(name, False, str(error))


def _emulated(new: Bundle, old: Bundle | None, allowed: bool) -> Check:
    passed: bool | None = None
    if not _is_emulated(new):
        passed = True if new.served_here else None
        reason = "made and measured on a real device"
        if not passed:
            reason = "losses were computed on a processor in the card's arithmetic, times are modelled: no card was "
            reason += "measured"
    elif old is not None and not _is_emulated(old):
        passed = False
        reason = "it was made on an emulator, the current one was not: it can never replace a measured one"
    elif not allowed:
        passed = False
        reason = "it was made on an emulator: no figure was measured. For a rehearsal: --allow-emulated"
    else:
        reason = "EMULATED, a rehearsal: no figure was measured"
    return checked("measured", passed, reason)


def _toolchain(new: Bundle, policy: Policy) -> Check:
    made = new.manifest.artifact.toolchain
    try:
        warnings = admit(made, open_target(made.target).toolchain(), policy)
    except BundleError as error:
        return checked("toolchain", False, str(error))
    return checked("toolchain", True, "; ".join(warnings) or "this machine is as the one its figures come from")


def _answers(new: Manifest, old: Manifest) -> Check:
    """Whether clients would understand the answers as before."""
    changes = []
    if new.task != old.task:
        changes.append(f"the task is {new.task}, it was {old.task}")
    if new.labels != old.labels:
        lost, gained = sorted({*old.labels} - {*new.labels}), sorted({*new.labels} - {*old.labels})
        words = "; ".join(f"{w} {', '.join(n[:5])}" for w, n in (("without", lost), ("with", gained)) if n)
        changes.append(f"other labels ({words or 'in another order'})")
    if (new.text is None) != (old.text is None):
        changes.append("one takes texts, the other arrays")
    if new.text is None and new.model.inputs != old.model.inputs:
        changes.append("other inputs")
    words = "task, labels and inputs are the current one's"
    if changes:
        words = "; ".join(changes) + ": clients of the current one would not understand it"
    return checked("answers", not changes, words)


def _size(new: Bundle, old: Bundle | None, limits: Limits) -> Check:
    mine = new.manifest.artifact.size_bytes
    if old is None:
        return checked("size", None, f"{mine / 1e6:.3g} MB; nothing to compare it with")
    theirs, limit = old.manifest.artifact.size_bytes, 100 * limits.max_size_increase
    increase = mine / theirs - 1
    words = f"{mine / 1e6:.3g} MB against {theirs / 1e6:.3g} MB of model files"
    kept = increase <= limits.max_size_increase
    return checked("size", kept, words, figure=100 * increase, limit=limit, unit="%")


def _is_emulated(bundle: Bundle) -> bool:
    return bundle.manifest.artifact.toolchain.emulated
