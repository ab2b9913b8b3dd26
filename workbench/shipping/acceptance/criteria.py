"""The criteria of a baseline, each with our figure under its conditions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.load.result import P99_ANSWERS
from workbench.shipping.acceptance.baseline import SHARES, TIMES, Baseline, LoadFigures, Resource
from workbench.shipping.acceptance.verdict import (
    Bound,
    Criterion,
    Key,
    Verdict,
    data_needed,
    decided,
    exact,
    share,
)
from workbench.values.agreement import Agreement, AgreementPath, Agreements
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate

_KEYS: tuple[Key, ...] = ("throughput", "p50", "p95", "p99")
"""Of `TIMES` and `SHARES`, in their order."""


def evaluate(
    baseline: Baseline,
    *,
    loads: Sequence[LoadFigures] = (),
    float_loads: Sequence[LoadFigures] = (),
    agreement: Agreements | None = None,
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
        agreement: None where nobody measured it.
        accuracy_drop_pp: of what ships against the float model; that of `agreement` where it is None.
        accuracy_samples: that the drop rests on; 0 where nobody said it.
        int8: whether what ships is quantized; None where that is not known.
        emulated: the device was an emulator: loads are no figures, and what else is known of it is modelled.
    """
    if emulated:
        loads, float_loads, accuracy_level = (), (), "modelled"
    criteria = [*_timed(baseline, loads, emulated)]
    if (percent := baseline.limits.int8_throughput_at_least_percent) is not None:
        criteria.append(_int8(baseline, percent, loads, float_loads, int8, emulated))
    criteria += agreement_criteria(baseline, agreement, accuracy_drop_pp, accuracy_level, accuracy_samples)
    limits = baseline.limits
    for key, unit, theirs, percent in (
        ("memory", "GB", baseline.memory, limits.memory_at_most_percent),
        ("power", "W", baseline.power, limits.power_at_most_percent),
    ):
        if theirs is not None:
            asked = _share_asked(key, key, unit, "at most", theirs.value, percent)  # type: ignore[arg-type]  # a Key
            criteria.append(_resource(asked, baseline, theirs, percent, loads))
    return Verdict(
        baseline=baseline.name,
        source=baseline.source,
        criteria=tuple(criteria),
        theirs=baseline.level,
        answers="" if baseline.answers is None else str(baseline.answers),
    )


def _timed(baseline: Baseline, loads: Sequence[LoadFigures], emulated: bool) -> Iterator[Criterion]:
    for key, name, limit_name in zip(_KEYS, TIMES, SHARES, strict=True):
        percent: float | None = getattr(baseline.limits, limit_name)
        published = [(load, getattr(load, name)) for load in baseline.loads if getattr(load, name) is not None]
        for theirs, value in published:
            label = key.upper() if key.startswith("p") else key
            label += f" at {theirs}" if len(published) > 1 else ""
            unit, bound = ("ms", "at most") if key.startswith("p") else ("requests/s", "at least")
            asked = _share_asked(key, label, unit, bound, value.value, percent)  # type: ignore[arg-type]  # a Bound
            found, why = matching(theirs, loads, emulated)
            if found is not None and (found.doubt or getattr(found, name) is None):
                why = found.doubt or f"{found.answers} answers give no {label}; it takes {P99_ANSWERS}: load longer"
                found = None
            if found is None:
                yield replace(asked, note=why)
                continue
            own = ", texts of their own lengths" if found.length is None else ""
            yield _by_share(asked, getattr(found, name), value, percent, found, f"{found}{own}")


def matching(theirs: LoadFigures, loads: Sequence[LoadFigures], emulated: bool) -> tuple[LoadFigures | None, str]:
    """(figures under the same load, '') or (None, why there are none and what to do)."""
    alike = [one for one in loads if one.conditions == theirs.conditions]
    if alike:
        return alike[0], ""
    asked = f"--concurrency {theirs.concurrency}"
    asked += f" --length {theirs.length}" if theirs.length is not None else ""
    asked += f" --batch {theirs.batch}" if theirs.batch > 1 else ""
    ours = next((one for one in loads if one.concurrency == theirs.concurrency), None)
    if ours is not None:
        own = ", texts of their own lengths" if ours.length is None else ""
        without = " and without --length" if theirs.length is None and ours.length is not None else ""
        return None, f"not comparable: ours with {ours}{own}, theirs with {theirs}; load with {asked}{without}"
    if emulated:
        return None, _EMULATED
    return None, f"needs a load with {asked}"


_EMULATED = "the device is emulated: its times are no figures"


def _share_asked(key: Key, name: str, unit: str, bound: Bound, published: float, percent: float | None) -> Criterion:
    """Of a share of their figure; nothing is measured of it yet."""
    limit = None if percent is None else published * percent / 100
    return Criterion(key=key, name=name, unit=unit, published=published, bound=bound, limit=limit)


def _by_share(
    asked: Criterion, ours: Estimate, theirs: Estimate, percent: float | None, load: LoadFigures, note: str
) -> Criterion:
    """A figure held against a share of theirs, by the interval of the ratio."""
    ratio = share(ours, theirs)
    found = replace(asked, figure=ours, outcome="no limit", share_percent=ratio, level="measured", note=note)
    if percent is None:
        return found
    found = replace(found, outcome=decided(ratio, asked.bound, percent))
    if found.outcome != "not provable":
        return found
    needed = data_needed(ratio, percent, load.seconds or 0.0, "s of load")
    if theirs.low < theirs.high:
        needed += "; theirs is as uncertain: record the baseline longer too"
    return replace(found, needed=needed)


def _int8(
    baseline: Baseline,
    percent: float,
    loads: Sequence[LoadFigures],
    floats: Sequence[LoadFigures],
    int8: bool | None,
    emulated: bool,
) -> Criterion:
    """What INT8 promises: throughput beside the float model's own service on the same platform."""
    name = "INT8 throughput over float's"
    asked = Criterion(key="int8 throughput", name=name, unit="%", bound="at least", limit=percent)
    if int8 is False:
        return replace(asked, outcome="does not apply", note="what ships is not quantized")
    wanted = _busiest(baseline)
    pairs = [
        (one, other)
        for one in loads
        for other in floats
        if one.conditions == other.conditions and (wanted is None or one.concurrency == wanted.concurrency)
    ]
    if not pairs or pairs[0][0].doubt or pairs[0][1].doubt:
        why = "needs the float model's service under the same load: --float BUNDLE of the float candidate"
        doubts = [one.doubt for pair in pairs for one in pair if one.doubt]
        return replace(asked, note=_EMULATED if emulated else next(iter(doubts), why))
    ours, theirs = (one.throughput_per_s for one in pairs[0])
    assert ours is not None  # both are of loads of ours
    assert theirs is not None
    ratio = share(ours, theirs)
    outcome = decided(ratio, "at least", percent)
    note = f"{pairs[0][0]}; {ours.value:.4g} against {theirs.value:.4g} requests/s of the float model"
    needed = ""
    if outcome == "not provable":
        needed = data_needed(ratio, percent, pairs[0][0].seconds or 0.0, "s of each load")
    return replace(asked, figure=ratio, outcome=outcome, level="measured", note=note, needed=needed)


_OF = {"device": "the whole card", "service": "the service on its card", "host": "the service's processes"}


def _resource(
    asked: Criterion, baseline: Baseline, theirs: Resource, percent: float | None, loads: Sequence[LoadFigures]
) -> Criterion:
    """Like with like: memory of the same thing, power of the card, under the load of the throughput."""
    wanted = _busiest(baseline)
    if wanted is None:
        return replace(asked, note="the baseline has no load with a throughput")
    found, why = matching(wanted, loads, emulated=False)
    memory = asked.key == "memory"
    of = theirs.of if memory else theirs.of or "device"
    if of is None:
        why = "not comparable: the baseline does not say what its memory is of; say it (of: device, service or host)"
    elif not memory and of != "device":
        why = f"not comparable: theirs is of the {of}, ours of the card"
    elif found is not None:
        ours = {one.of: one for one in (found.memory if memory else filter(None, [found.power]))}
        if of in ours:
            note = f"of {_OF[of]}; {found}" if memory else str(found)
            return _by_share(asked, exact(ours[of].value), exact(theirs.value), percent, found, note)
        why = "nothing told the card's power during the load"
        if memory:
            known = " and ".join(words for kind, words in _OF.items() if kind in ours) or "nothing"
            why = f"not comparable: theirs is of {_OF[of]}, ours is known of {known}"
    return replace(asked, note=why)


def _busiest(baseline: Baseline) -> LoadFigures | None:
    """The load of most clients that has a throughput: what memory and power were taken under."""
    loads = [load for load in baseline.loads if load.throughput_per_s is not None]
    return max(loads, key=lambda load: load.concurrency, default=None)


_MEASURE = "workbench agreement measures it"
_FLOAT: tuple[AgreementPath, ...] = ("float32 compiled", "float16 compiled", "float32")
"""The float path of what ships, the most exact first."""


def agreement_criteria(
    baseline: Baseline, agreement: Agreements | None, drop: Estimate | None, level: Evidence, samples: int
) -> Iterator[Criterion]:
    """One for each limit that is set.

    Top-1 and cosine are held against the other platform's answers where the baseline has some or the agreement compares
    with them, else against our own float32 reference, and say so. Maximum and mean distance are the float path's from
    the float32 reference (PyTorch's where the float path is that reference itself).

    Args:
        drop: of what ships against float, where it is known; else that of `agreement`.
    """
    limits = baseline.limits
    theirs = baseline.answers is not None or (
        agreement is not None and any("old platform" in (a.path, a.reference) for a in agreement.paths)
    )
    yield _drop(limits.accuracy_drop_pp, agreement, drop, level, samples)
    served = _found(agreement, ("served",), "old platform" if theirs else "float32", baseline.answers)
    of_float = _float_path(agreement)
    cosine = _found(agreement, _FLOAT, "old platform", baseline.answers) if theirs else of_float
    rows: tuple[tuple[Key, str, Bound, float | None, tuple[Agreement | None, str], str], ...] = (
        ("top-1 change", "top-1 change", "at most", limits.top1_change_pp, served, ""),
        ("cosine", "cosine of the float path", "at least", limits.cosine_at_least, cosine, "worst_cosine"),
        ("served cosine", "cosine of what ships", "at least", limits.served_cosine_at_least, served, "worst_cosine"),
        ("max abs", "max abs of the float path", "at most", limits.max_abs_at_most, of_float, "max_abs"),
        ("mae", "MAE of the float path", "at most", limits.mae_at_most, of_float, "mae"),
    )
    for key, name, bound, limit, (found, why), field in rows:
        if limit is None:
            continue
        asked = Criterion(key=key, name=name, unit="" if field else "pp", bound=bound, limit=limit)
        if found is None or (not field and found.top1 is None):
            yield replace(asked, note=why or "its outputs are no classes")
            continue
        hidden = sum(output.not_finite for output in found.outputs) if field else 0
        figure = exact(getattr(found, field)) if field else _changed(found)  # the worst of these samples, or their mean
        outcome = "failed" if hidden else decided(figure, bound, limit)
        needed = ""
        if outcome == "not provable":
            needed = data_needed(figure, limit, found.samples, "samples")
        note = f"{found.path} against {found.reference}, {found.samples} samples"
        note += f", mean cosine {found.mean_cosine:.6f}" if found.outputs else ""
        note += f"; {hidden} values are not finite" if hidden else ""
        known: Evidence = "modelled" if found.emulated else "measured" if level == "modelled" else level
        yield replace(asked, figure=figure, outcome=outcome, level=known, note=note, needed=needed)


def _changed(found: Agreement) -> Estimate:
    """Samples with another best class, in percent."""
    assert found.top1 is not None  # asked before
    same = found.top1
    return Estimate(value=100 * (1 - same.value), low=100 * (1 - same.high), high=100 * (1 - same.low))


def _drop(
    limit: float | None, agreement: Agreements | None, drop: Estimate | None, level: Evidence, samples: int
) -> Criterion:
    asked = Criterion(key="accuracy drop", name="accuracy loss", unit="pp", bound="at most", limit=limit)
    note = "against the float model"
    served, _ = _found(agreement, ("served",), "float32")
    if drop is None and served is not None and served.drop is not None and served.drop.unit == "pp":
        drop, samples, note = served.drop.drop_pp, served.samples, f"against float32, {served.samples} samples"
        level = "modelled" if served.emulated else "measured"
    if drop is None:
        return replace(asked, note="the bundle has no comparison of accuracy")
    found = replace(asked, figure=drop, outcome="no limit", level=level, note=note)
    if limit is None:
        return found
    found = replace(found, outcome=decided(drop, "at most", limit))
    if found.outcome != "not provable":
        return found
    return replace(found, needed=data_needed(drop, limit, samples, "samples"))


def _float_path(agreement: Agreements | None) -> tuple[Agreement | None, str]:
    """The most exact compiled float path beside float32; where none is compiled, float32 itself beside PyTorch."""
    found, why = _found(agreement, ("float32 compiled",), "float32")
    if found is None and agreement is not None:
        beside, _ = _found(agreement, ("float32",), "pytorch")
        return (beside, "") if beside is not None else (None, why)
    return found, why


def _found(
    agreement: Agreements | None, paths: Sequence[AgreementPath], reference: AgreementPath, answers: Path | None = None
) -> tuple[Agreement | None, str]:
    """The first of these paths that was compared with the reference, whichever of the two was called so.

    Args:
        answers: the other platform's, where the baseline has some: then they are what is missing.
    """
    if agreement is not None:
        for path in paths:
            found = agreement.find(path, reference) or agreement.find(reference, path)
            if found is not None:
                return found, ""
    hint = _MEASURE
    if reference == "old platform":
        hint += f"; with --reference {shlex.quote(str(answers or 'answers.npz'))} for the other platform's answers"
    missing = {} if agreement is None or (reference == "old platform" and answers is not None) else agreement.missing
    return None, next((missing[path] for path in (*paths, reference) if path in missing), hint)
