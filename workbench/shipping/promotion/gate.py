"""The gate itself: every question in order, cheap ones first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.bundle import Bundle, Manifest, read_bundle, verify_bundle
from workbench.bundle.fingerprint import Policy, admit
from workbench.bundle.signing import TrustedKeys
from workbench.inputs.dataset import Dataset
from workbench.shipping.promotion.accuracy import accuracy_check, float_check, unpaired
from workbench.shipping.promotion.verdict import Check, CheckOutcome, Limits, LoadRound, Verdict
from workbench.targets import open_target
from workbench.values.errors import BundleError, MeasureError
from workbench.values.measurement import ServiceFigures

LoadOnce = Callable[[Path], ServiceFigures]
"""Serve a bundle, load it, stop it. Raises MeasureError or BundleError where it does not serve."""

_ERRORS, _THROUGHPUT, _P99 = "errors under load", "throughput under load", "P99 under load"


def not_loaded(why: str) -> list[Check]:
    return [Check(name=name, outcome="not checked", reason=why) for name in (_ERRORS, _THROUGHPUT, _P99)]


def load_checks(
    new: Bundle, old: Bundle, limits: Limits, load: LoadOnce, rounds: int
) -> tuple[list[Check], tuple[LoadRound, ...]]:
    """Load both in each round; shares are of figures of one round, and their median is held against the limit."""
    found: list[LoadRound] = []
    for number in range(rounds):
        figures: dict[str, ServiceFigures] = {}
        # whoever comes second meets a warmer machine: each comes first as often
        for name, bundle in (("new", new), ("old", old)) if number % 2 else (("old", old), ("new", new)):
            try:
                figures[name] = load(bundle.directory)
            except (MeasureError, BundleError) as error:
                failed = Check(name=_ERRORS, outcome="failed", reason=f"{bundle.directory} does not serve: {error}")
                return [failed, *not_loaded("a service failed")[1:]], tuple(found)
        found.append(LoadRound(candidate=figures["new"], current=figures["old"]))
    return [_errors(found), _throughput(found, limits), _p99(found, limits)], tuple(found)


def _errors(rounds: Sequence[LoadRound]) -> Check:
    count, asked = sum(r.candidate.errors for r in rounds), sum(r.candidate.requests for r in rounds)
    return Check(
        name=_ERRORS,
        outcome="failed" if count else "passed",
        reason=f"{count} of {asked} requests had no success ({rounds[0].candidate.load})",
        figure=float(count),
        limit=0.0,
    )


def _throughput(rounds: Sequence[LoadRound], limits: Limits) -> Check:
    shares, mine, theirs = _compared(rounds, lambda figures: figures.throughput_per_s.value)
    share, limit = statistics.median(shares), 100 * limits.min_throughput
    words = f"{mine:.4g} against {theirs:.4g} requests/s; {_by_round(shares)}"
    return _measured(rounds, _THROUGHPUT, words, share, limit, passed=share >= limit)


def _p99(rounds: Sequence[LoadRound], limits: Limits) -> Check:
    shares, mine, theirs = _compared(rounds, lambda figures: figures.p99_ms.value)
    increases = [share - 100 for share in shares]
    increase, limit = statistics.median(increases), 100 * limits.max_p99_increase
    words = f"{mine:.3g} against {theirs:.3g} ms; {_by_round(increases)}"
    return _measured(rounds, _P99, words, increase, limit, passed=increase <= limit)


def _compared(rounds: Sequence[LoadRound], of: Callable[[ServiceFigures], float]) -> tuple[list[float], float, float]:
    """(ours in percent of theirs, round by round; the median of ours; the median of theirs)."""
    mine, theirs = [of(r.candidate) for r in rounds], [of(r.current) for r in rounds]
    shares = [100 * ours / other for ours, other in zip(mine, theirs, strict=True)]
    return shares, statistics.median(mine), statistics.median(theirs)


def _measured(
    rounds: Sequence[LoadRound], name: str, words: str, figure: float, limit: float, *, passed: bool
) -> Check:
    """A figure that must not be relied on passes nothing."""
    doubts = dict.fromkeys(f.note for r in rounds for f in (r.candidate, r.current) if not f.reliable)
    if doubts:
        words += f"; not to be relied on: {'; '.join(doubts)}. Load longer (--load-seconds), or on a quieter machine"
    outcome: CheckOutcome = "passed" if passed and not doubts else "failed"
    return Check(name=name, outcome=outcome, reason=words, figure=figure, limit=limit, unit="%")


def _by_round(values: Sequence[float]) -> str:
    return f"by round {', '.join(f'{value:.0f}' for value in values)} %"


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
            checks += [same, accuracy_check(new, old, limits, holdout) if same.outcome == "passed" else unpaired()]
        else:
            checks.append(float_check(new.manifest, limits))
        checks.append(_size(new, old, limits))
        why = _why_no_load(checks, new, old, load)
        if why or old is None or load is None:
            checks += not_loaded(why)
        else:
            loading, found = load_checks(new, old, limits, load, rounds)
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
        report = verify_bundle(bundle.directory, trusted=trusted)
    except BundleError as error:
        return Check(name=name, outcome="failed", reason=str(error))
    return Check(name=name, outcome="passed", reason=report.summary)


def _emulated(new: Bundle, old: Bundle | None, allowed: bool) -> Check:
    if not new.served_here and not _is_emulated(new):
        reason = (
            "losses were computed on a processor in the card's arithmetic, times are modelled: no card was measured"
        )
        return Check(name="measured", outcome="not checked", reason=reason)
    if not _is_emulated(new):
        return Check(name="measured", outcome="passed", reason="made and measured on a real device")
    if old is not None and not _is_emulated(old):
        reason = "it was made on an emulator, the current one was not: it can never replace a measured one"
        return Check(name="measured", outcome="failed", reason=reason)
    if not allowed:
        reason = "it was made on an emulator: no figure was measured. For a rehearsal: --allow-emulated"
        return Check(name="measured", outcome="failed", reason=reason)
    return Check(name="measured", outcome="not checked", reason="EMULATED, a rehearsal: no figure was measured")


def _toolchain(new: Bundle, policy: Policy) -> Check:
    made = new.manifest.artifact.toolchain
    try:
        warnings = admit(made, open_target(made.target).toolchain(), policy)
    except BundleError as error:
        return Check(name="toolchain", outcome="failed", reason=str(error))
    reason = "; ".join(warnings) or "this machine is as the one its figures come from"
    return Check(name="toolchain", outcome="passed", reason=reason)


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
    if changes:
        reason = "; ".join(changes) + ": clients of the current one would not understand it"
        return Check(name="answers", outcome="failed", reason=reason)
    return Check(name="answers", outcome="passed", reason="task, labels and inputs are the current one's")


def _size(new: Bundle, old: Bundle | None, limits: Limits) -> Check:
    mine = new.manifest.artifact.size_bytes
    if old is None:
        return Check(name="size", outcome="not checked", reason=f"{mine / 1e6:.3g} MB; nothing to compare it with")
    theirs = old.manifest.artifact.size_bytes
    increase = mine / theirs - 1
    return Check(
        name="size",
        outcome="passed" if increase <= limits.max_size_increase else "failed",
        reason=f"{mine / 1e6:.3g} MB against {theirs / 1e6:.3g} MB of model files",
        figure=100 * increase,
        limit=100 * limits.max_size_increase,
        unit="%",
    )


def _is_emulated(bundle: Bundle) -> bool:
    return bundle.manifest.artifact.toolchain.emulated
