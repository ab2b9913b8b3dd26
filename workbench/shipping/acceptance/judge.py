"""The criteria of a baseline, each with our figure under its conditions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.load.result import P99_ANSWERS
from workbench.shipping.acceptance.baseline import Baseline, BaselineLoad, Resource, conditions_words
from workbench.shipping.acceptance.figures import LoadFigures
from workbench.shipping.acceptance.verdict import (
    Bound,
    Criterion,
    Key,
    Outcome,
    Verdict,
    data_needed,
    decided,
    exact,
    share,
)
from workbench.values.evidence import Evidence
from workbench.values.fidelity import Agreement, Fidelity, FidelityPath
from workbench.values.measurement import Estimate
from workbench.values.significance import drop_variance

_TIMES: tuple[tuple[Key, str, str, Bound, str], ...] = (
    ("throughput", "throughput_per_s", "requests/s", "at least", "throughput_at_least_percent"),
    ("p50", "p50_ms", "ms", "at most", "p50_at_most_percent"),
    ("p95", "p95_ms", "ms", "at most", "p95_at_most_percent"),
    ("p99", "p99_ms", "ms", "at most", "p99_at_most_percent"),
)


def judge(
    baseline: Baseline,
    *,
    loads: Sequence[LoadFigures] = (),
    float_loads: Sequence[LoadFigures] = (),
    fidelity: Fidelity | None = None,
    accuracy_drop_pp: Estimate | None = None,
    accuracy_level: Evidence = "measured held-out",
    accuracy_samples: int = 0,
    int8: bool | None = None,
    emulated: bool = False,
) -> Verdict:
    """Compare figures with a baseline's limits.

    Args:
        loads: of what ships. One is compared with a load of the baseline where clients, length and batch are equal.
        float_loads: of the float model's service as it runs on the new platform today, for what INT8 promises.
        fidelity: None where nobody measured it.
        accuracy_drop_pp: of what ships against the float model; that of `fidelity` where it is None.
        accuracy_samples: that the drop rests on; 0 where nobody said it.
        int8: whether what ships is quantized; None where that is not known.
        emulated: the device was an emulator: loads that were measured are no figures, and what else is known of it is
            modelled.
    """
    if emulated:
        loads = [one for one in loads if one.level not in ("measured", "measured held-out")]
        float_loads = [one for one in float_loads if one.level not in ("measured", "measured held-out")]
    criteria = [*_timed(baseline, loads, emulated)]
    criteria += _int8(baseline, loads, float_loads, int8, emulated)
    criteria += agreement_criteria(
        baseline, fidelity, accuracy_drop_pp, "modelled" if emulated else accuracy_level, accuracy_samples
    )
    if baseline.memory is not None:
        criteria.append(_memory(baseline, baseline.memory, loads))
    if baseline.power is not None:
        criteria.append(_power(baseline, baseline.power, loads))
    return Verdict(
        baseline=baseline.name,
        source=baseline.source,
        criteria=tuple(criteria),
        theirs=baseline.level,
        answers="" if baseline.answers is None else str(baseline.answers),
    )


def _timed(baseline: Baseline, loads: Sequence[LoadFigures], emulated: bool) -> Iterator[Criterion]:
    several = {name: sum(getattr(load, name) is not None for load in baseline.loads) > 1 for _, name, *_ in _TIMES}
    for key, name, unit, bound, limit_name in _TIMES:
        percent: float | None = getattr(baseline.limits, limit_name)
        for theirs in baseline.loads:
            published: Estimate | None = getattr(theirs, name)
            if published is None:
                continue
            label = key.upper() if key.startswith("p") else key
            label += f" at {theirs}" if several[name] else ""
            found, why = matching(theirs, loads, emulated)
            if found is not None and (found.doubt or getattr(found, name) is None):
                why = found.doubt or f"{found.answers} answers give no {label}; it takes {P99_ANSWERS}: load longer"
                found = None
            if found is None:
                yield _missing(key, label, unit, published.value, bound, percent, why)
            else:
                ours: Estimate = getattr(found, name)
                yield _share_criterion(key, label, unit, ours, published, bound, percent, found, theirs)


def matching(theirs: BaselineLoad, loads: Sequence[LoadFigures], emulated: bool) -> tuple[LoadFigures | None, str]:
    """(figures under the same load, '') or (None, why there are none and what to do)."""
    clients = [one for one in loads if one.concurrency == theirs.concurrency]
    alike = [one for one in clients if (one.length, one.batch) == (theirs.length, theirs.batch)]
    if alike:
        return alike[0], ""
    asked = f"--concurrency {theirs.concurrency}"
    asked += f" --length {theirs.length}" if theirs.length is not None else ""
    asked += f" --batch {theirs.batch}" if theirs.batch > 1 else ""
    if clients:
        ours = clients[0]
        mine = conditions_words(ours.concurrency, ours.length, ours.batch)
        own = ", texts of their own lengths" if ours.length is None else ""
        without = " and without --length" if theirs.length is None and ours.length is not None else ""
        return None, f"not comparable: ours with {mine}{own}, theirs with {theirs}; load with {asked}{without}"
    if emulated:
        return None, "the device is emulated: its times are no figures"
    return None, f"needs a load with {asked}"


def _share_criterion(
    key: Key,
    name: str,
    unit: str,
    ours: Estimate,
    theirs: Estimate,
    bound: Bound,
    percent: float | None,
    load: LoadFigures,
    conditions: BaselineLoad | None = None,
) -> Criterion:
    """A figure held against a share of theirs, by the interval of the ratio."""
    ratio = share(ours, theirs)
    outcome = "no limit" if percent is None else decided(ratio, bound, percent)
    needed = ""
    if outcome == "not provable" and percent is not None:
        needed = data_needed(ratio, percent, load.seconds, "s of load")
        if theirs.low < theirs.high:
            needed += "; theirs is as uncertain: record the baseline longer too"
    words = conditions_words(load.concurrency, load.length, load.batch)
    if conditions is not None and load.length is None:
        words += ", texts of their own lengths"
    return Criterion(
        key=key,
        name=name,
        unit=unit,
        figure=ours,
        published=theirs.value,
        bound=bound,
        limit=None if percent is None else theirs.value * percent / 100,
        outcome=outcome,
        share_percent=ratio,
        level=load.level,
        note=words,
        needed=needed,
    )


def _int8(
    baseline: Baseline, loads: Sequence[LoadFigures], floats: Sequence[LoadFigures], int8: bool | None, emulated: bool
) -> Iterator[Criterion]:
    """What INT8 promises: throughput beside the float model's own service on the same platform."""
    percent = baseline.limits.int8_throughput_at_least_percent
    if percent is None:
        return
    key: Key = "int8 throughput"
    name = "INT8 throughput over float's"
    if int8 is False:
        yield Criterion(
            key=key,
            name=name,
            unit="%",
            figure=None,
            published=None,
            bound="at least",
            limit=percent,
            outcome="does not apply",
            note="what ships is not quantized",
        )
        return
    wanted = _busiest(baseline)
    pairs = [
        (one, other)
        for one in loads
        for other in floats
        if (one.concurrency, one.length, one.batch) == (other.concurrency, other.length, other.batch)
        and (wanted is None or one.concurrency == wanted.concurrency)
    ]
    if not pairs or pairs[0][0].doubt or pairs[0][1].doubt:
        why = "the device is emulated: its times are no figures" if emulated and not loads else ""
        why = why or next((one.doubt for pair in pairs for one in pair if one.doubt), "")
        why = why or "needs the float model's service under the same load: --float BUNDLE of the float candidate"
        yield _missing(key, name, "%", None, "at least", None, why, limit=percent)
        return
    ours, theirs = pairs[0]
    ratio = share(ours.throughput_per_s, theirs.throughput_per_s)
    outcome = decided(ratio, "at least", percent)
    needed = data_needed(ratio, percent, ours.seconds, "s of each load") if outcome == "not provable" else ""
    yield Criterion(
        key=key,
        name=name,
        unit="%",
        figure=ratio,
        published=None,
        bound="at least",
        limit=percent,
        outcome=outcome,
        level=ours.level,
        note=f"{conditions_words(ours.concurrency, ours.length, ours.batch)}; "
        f"{ours.throughput_per_s.value:.4g} against {theirs.throughput_per_s.value:.4g} requests/s of the float model",
        needed=needed,
    )


def _memory(baseline: Baseline, theirs: Resource, loads: Sequence[LoadFigures]) -> Criterion:
    """Like with like: memory of the same thing, under the load of the throughput."""
    percent = baseline.limits.memory_at_most_percent
    found, why = _at_throughput(baseline, loads)
    words = {"device": "the whole card", "service": "the service on its card", "host": "the service's processes"}
    if theirs.of is None:
        why = "not comparable: the baseline does not say what its memory is of; say it (of: device, service or host)"
    elif found is not None:
        bytes_used = getattr(found, f"{theirs.of}_memory")
        if bytes_used is not None:
            used = exact(bytes_used / 1e9)
            made = _share_criterion("memory", "memory", "GB", used, exact(theirs.value), "at most", percent, found)
            return replace(made, note=f"of {words[theirs.of]}; {made.note}")
        known = [words[kind] for kind in ("device", "service", "host") if getattr(found, f"{kind}_memory") is not None]
        why = f"not comparable: theirs is of {words[theirs.of]}, ours is known of {' and '.join(known) or 'nothing'}"
    return _missing("memory", "memory", "GB", theirs.value, "at most", percent, why)


def _power(baseline: Baseline, theirs: Resource, loads: Sequence[LoadFigures]) -> Criterion:
    percent = baseline.limits.power_at_most_percent
    found, why = _at_throughput(baseline, loads)
    if theirs.of not in (None, "device"):
        why = f"not comparable: theirs is of the {theirs.of}, ours of the card"
    elif found is not None and found.power_w is not None:
        return _share_criterion("power", "power", "W", found.power_w, exact(theirs.value), "at most", percent, found)
    elif found is not None:
        why = "nothing told the card's power during the load"
    return _missing("power", "power", "W", theirs.value, "at most", percent, why)


def _busiest(baseline: Baseline) -> BaselineLoad | None:
    """The load of most clients that has a throughput: what memory and power were taken under."""
    loads = [load for load in baseline.loads if load.throughput_per_s is not None]
    return max(loads, key=lambda load: load.concurrency, default=None)


def _at_throughput(baseline: Baseline, loads: Sequence[LoadFigures]) -> tuple[LoadFigures | None, str]:
    wanted = _busiest(baseline)
    if wanted is None:
        return None, "the baseline has no load with a throughput"
    return matching(wanted, loads, emulated=False)


def _missing(
    key: Key,
    name: str,
    unit: str,
    published: float | None,
    bound: Bound,
    percent: float | None,
    why: str,
    *,
    limit: float | None = None,
) -> Criterion:
    if percent is not None and published is not None:
        limit = published * percent / 100
    return Criterion(
        key=key,
        name=name,
        unit=unit,
        figure=None,
        published=published,
        bound=bound,
        limit=limit,
        outcome="not measured",
        note=why,
    )


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
