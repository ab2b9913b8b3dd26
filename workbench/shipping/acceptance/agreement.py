"""The criteria about answers: accuracy, top-1, and how far outputs lie apart."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.shipping.acceptance.baseline import Baseline
from workbench.shipping.acceptance.verdict import Bound, Criterion, Key, Outcome, data_needed, decided, exact
from workbench.values.evidence import Evidence
from workbench.values.fidelity import Agreement, Fidelity, FidelityPath
from workbench.values.measurement import Estimate
from workbench.values.significance import drop_variance

_MEASURE = "workbench fidelity measures it"
_UNTOLD = 1000
"""Samples that a drop is taken to rest on where nobody said it."""
_FLOAT: tuple[FidelityPath, ...] = ("float32 compiled", "float16 compiled", "float32")
"""The float path of what ships, the most exact first."""


def agreement_criteria(
    baseline: Baseline, fidelity: Fidelity | None, drop: Estimate | None, level: Evidence, samples: int
) -> Iterator[Criterion]:
    """One for each limit that is set.

    Top-1 and cosine are held against the other platform's answers where the baseline has some or the fidelity compares
    with them, else against our own float32 reference, and say so. Maximum and mean distance are the float path's from
    the float32 reference (PyTorch's where the float path is that reference itself).

    Args:
        drop: of what ships against float, where it is known; else that of `fidelity`.
    """
    limits = baseline.limits
    theirs = baseline.answers is not None or (
        fidelity is not None and any("old platform" in (a.path, a.reference) for a in fidelity.paths)
    )
    yield _drop(limits.accuracy_drop_pp, fidelity, drop, level, samples)
    served: Sequence[FidelityPath] = ("served",)
    if limits.top1_change_pp is not None:
        found, why = _found(fidelity, served, "old platform" if theirs else "float32", baseline.answers)
        yield _top1(limits.top1_change_pp, found, why, level)
    if limits.cosine_at_least is not None:
        found, why = _found(fidelity, _FLOAT, "old platform", baseline.answers) if theirs else _float_path(fidelity)
        name = "cosine of the float path"
        yield _distance("cosine", name, "worst_cosine", "at least", limits.cosine_at_least, found, why, level)
    if limits.served_cosine_at_least is not None:
        found, why = _found(fidelity, served, "old platform" if theirs else "float32", baseline.answers)
        limit = limits.served_cosine_at_least
        yield _distance("served cosine", "cosine of what ships", "worst_cosine", "at least", limit, found, why, level)
    for key, name, field, limit_of in (
        ("max abs", "max abs of the float path", "max_abs", limits.max_abs_at_most),
        ("mae", "MAE of the float path", "mae", limits.mae_at_most),
    ):
        if limit_of is not None:
            found, why = _float_path(fidelity)
            yield _distance(key, name, field, "at most", limit_of, found, why, level)  # type: ignore[arg-type]  # keys


def _drop(
    limit: float | None, fidelity: Fidelity | None, drop: Estimate | None, level: Evidence, samples: int
) -> Criterion:
    note = "against the float model"
    served, _ = _found(fidelity, ("served",), "float32")
    if drop is None and served is not None and served.drop is not None and served.drop.unit == "pp":
        drop, samples, note = served.drop.drop_pp, served.samples, f"against float32, {served.samples} samples"
        level = "modelled" if served.emulated else "measured"
    if drop is None:
        note = "the bundle has no comparison of accuracy"
    outcome: Outcome = "not measured"
    needed = ""
    if drop is not None:
        outcome = "no limit" if limit is None else decided(drop, "at most", limit)
        if outcome == "not provable" and limit is not None:
            needed = data_needed(drop, limit, samples, "samples", drop_variance(drop, samples or _UNTOLD))
    return Criterion(
        key="accuracy drop",
        name="accuracy drop",
        unit="pp",
        figure=drop,
        published=None,
        bound="at most",
        limit=limit,
        outcome=outcome,
        level=None if drop is None else level,
        note=note,
        needed=needed,
    )


def _top1(limit: float, found: Agreement | None, why: str, level: Evidence) -> Criterion:
    change = None
    if found is not None and found.top1 is not None:
        same = found.top1
        change = Estimate(value=100 * (1 - same.value), low=100 * (1 - same.high), high=100 * (1 - same.low))
    elif found is not None:
        why = "its outputs are no classes"
    outcome: Outcome = "not measured"
    needed = ""
    if change is not None and found is not None:
        outcome = decided(change, "at most", limit)
        if outcome == "not provable":
            needed = data_needed(change, limit, found.samples, "samples", lambda at: at * (100 - at))
    return Criterion(
        key="top-1 change",
        name="top-1 change",
        unit="pp",
        figure=change,
        published=None,
        bound="at most",
        limit=limit,
        outcome=outcome,
        level=None if change is None or found is None else _level(found, level),
        note=why if found is None or change is None else _words(found),
        needed=needed,
    )


def _distance(
    key: Key, name: str, field: str, bound: Bound, limit: float, found: Agreement | None, why: str, level: Evidence
) -> Criterion:
    """The worst of all samples, or a mean over all: figures of exactly these samples, so without an interval."""
    hidden = sum(output.not_finite for output in found.outputs) if found is not None else 0
    figure = None if found is None else exact(getattr(found, field))
    outcome: Outcome = "not measured" if figure is None else "failed" if hidden else decided(figure, bound, limit)
    note = why if found is None else _words(found) + (f"; {hidden} values are not finite" if hidden else "")
    return Criterion(
        key=key,
        name=name,
        unit="",
        figure=figure,
        published=None,
        bound=bound,
        limit=limit,
        outcome=outcome,
        level=None if found is None else _level(found, level),
        note=note,
    )


def _float_path(fidelity: Fidelity | None) -> tuple[Agreement | None, str]:
    """The most exact compiled float path beside float32; where none is compiled, float32 itself beside PyTorch."""
    found, why = _found(fidelity, ("float32 compiled",), "float32")
    if found is None and fidelity is not None:
        beside, _ = _found(fidelity, ("float32",), "pytorch")
        return (beside, "") if beside is not None else (None, why)
    return found, why


def _found(
    fidelity: Fidelity | None, paths: Sequence[FidelityPath], reference: FidelityPath, answers: Path | None = None
) -> tuple[Agreement | None, str]:
    """The first of these paths that was compared with the reference, whichever of the two was called so.

    Args:
        answers: the other platform's, where the baseline has some: then they are what is missing.
    """
    if fidelity is not None:
        for path in paths:
            found = fidelity.find(path, reference) or fidelity.find(reference, path)
            if found is not None:
                return found, ""
    hint = _MEASURE
    if reference == "old platform":
        hint += f"; with --reference {shlex.quote(str(answers or 'answers.npz'))} for the other platform's answers"
    missing = {} if fidelity is None or (reference == "old platform" and answers is not None) else fidelity.missing
    return None, next((missing[path] for path in (*paths, reference) if path in missing), hint)


def _words(found: Agreement) -> str:
    mean = f", mean cosine {found.mean_cosine:.6f}" if found.outputs else ""
    return f"{found.path} against {found.reference}, {found.samples} samples{mean}"


def _level(found: Agreement, level: Evidence) -> Evidence:
    return "modelled" if found.emulated else "measured" if level == "modelled" else level
