"""The criteria of a baseline, each with our figure under its conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from workbench.load.result import P99_ANSWERS
from workbench.shipping.acceptance.agreement import agreement_criteria
from workbench.shipping.acceptance.baseline import Baseline, BaselineLoad, Resource, conditions_words
from workbench.shipping.acceptance.figures import LoadFigures
from workbench.shipping.acceptance.verdict import Bound, Criterion, Key, Verdict, data_needed, decided, exact, share
from workbench.values.evidence import Evidence
from workbench.values.fidelity import Fidelity
from workbench.values.measurement import Estimate

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
