"""The criteria of a baseline, each with our figure under its conditions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.load.result import P99_ANSWERS
from workbench.shipping.acceptance.baseline import LIMITED, TIMED, ZONE, Baseline, LoadFigures, Resource
from workbench.shipping.acceptance.verdict import Criterion, Key, Outcome, Verdict, data_needed, decided, exact, share
from workbench.values.agreement import Agreement, AgreementPath, Agreements
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate
from workbench.values.sequential import Gate, decide


def evaluate(
    baseline: Baseline,
    *,
    loads: Sequence[LoadFigures] = (),
    float_loads: Sequence[LoadFigures] = (),
    agreement: Agreements | None = None,
    accuracy_loss_pp: Estimate | None = None,
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
        accuracy_loss_pp: of what ships against the float model; that of `agreement` where it is None.
        accuracy_samples: that the drop rests on; 0 where nobody said it.
        int8: whether what ships is quantized; None where that is not known.
        emulated: the device was an emulator: loads are no figures, and what else is known of it is modelled.
    """
    if emulated:
        loads, float_loads, accuracy_level = (), (), "modelled"
    criteria = [
        *_timed(baseline, loads, emulated),
        *_int8(baseline, loads, float_loads, int8, emulated),
        *agreement_criteria(baseline, agreement, accuracy_loss_pp, accuracy_level, accuracy_samples),
        *_resources(baseline, loads),
    ]
    return Verdict(
        baseline=baseline.name,
        source=baseline.source,
        criteria=tuple(criteria),
        theirs=baseline.level,
        answers="" if baseline.answers is None else str(baseline.answers),
    )


def _timed(baseline: Baseline, loads: Sequence[LoadFigures], emulated: bool) -> Iterator[Criterion]:
    for key in TIMED:
        known = LIMITED[key]
        published = [(load, value) for load in baseline.loads if (value := getattr(load, known.of)) is not None]
        for theirs, value in published:
            asked = _asked(baseline, key, value.value, f" at {theirs}" if len(published) > 1 else "")
            found, why = matching(theirs, loads, emulated)
            if found is not None and (found.doubt or getattr(found, known.of) is None):
                why = f"{found.answers} answers give no {asked.name}; it takes {P99_ANSWERS}: load longer"
                yield replace(asked, note=found.doubt or why)
                continue
            if found is None:
                yield replace(asked, note=why)
                continue
            own = ", texts of their own lengths" if found.length is None else ""
            yield _by_share(asked, baseline, getattr(found, known.of), value, found, f"{found}{own}")


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


def _asked(baseline: Baseline, key: Key, published: float | None = None, at: str = "") -> Criterion:
    """Nothing is measured of it yet. Args: published: their figure, of which the limit is a share."""
    known, limit = LIMITED[key], baseline.limits.get(LIMITED[key].limit)
    if published is not None and limit is not None:
        limit = published * limit / 100
    name = f"{known.name}{at}"
    return Criterion(key=key, name=name, unit=known.unit, published=published, bound=known.bound, limit=limit)


def _judged(asked: Criterion, by: Estimate, limit: float | None, have: float, unit: str) -> Criterion:
    """Args: by: what is held against the limit; have: how much data that rests on."""
    if limit is None:
        return replace(asked, outcome="no limit")
    outcome = decided(by, asked.bound, limit)
    needed = data_needed(by, limit, have, unit) if outcome == "not provable" else ""
    return replace(asked, outcome=outcome, needed=needed)


def _by_share(
    asked: Criterion, baseline: Baseline, ours: Estimate, theirs: Estimate, load: LoadFigures, note: str
) -> Criterion:
    """A figure held against a share of theirs, by the interval of the ratio."""
    ratio = share(ours, theirs)
    found = replace(asked, figure=ours, share_percent=ratio, level="measured", note=note)
    found = _judged(found, ratio, baseline.limits.get(LIMITED[asked.key].limit), load.seconds or 0.0, "s of load")
    if found.needed and theirs.low < theirs.high:
        found = replace(found, needed=f"{found.needed}; theirs is as uncertain: record the baseline longer too")
    return found


def _int8(
    baseline: Baseline,
    loads: Sequence[LoadFigures],
    floats: Sequence[LoadFigures],
    int8: bool | None,
    emulated: bool,
) -> Iterator[Criterion]:
    """What INT8 promises: throughput beside the float model's own service on the same platform."""
    asked, wanted = _asked(baseline, "int8 throughput"), _busiest(baseline)
    if asked.limit is None:
        return
    if int8 is False:
        yield replace(asked, outcome="does not apply", note="what ships is not quantized")
        return
    pairs = [
        (one, other)
        for one in loads
        for other in floats
        if one.conditions == other.conditions and (wanted is None or one.concurrency == wanted.concurrency)
    ]
    if not pairs or pairs[0][0].doubt or pairs[0][1].doubt:
        why = "needs the float model's service under the same load: --float BUNDLE of the float candidate"
        doubts = [one.doubt for pair in pairs for one in pair if one.doubt]
        yield replace(asked, note=_EMULATED if emulated else next(iter(doubts), why))
        return
    ours, theirs = (one.throughput_per_s for one in pairs[0])
    assert ours is not None  # both are of loads of ours
    assert theirs is not None
    ratio = share(ours, theirs)
    note = f"{pairs[0][0]}; {ours.value:.4g} against {theirs.value:.4g} requests/s of the float model"
    found = replace(asked, figure=ratio, level="measured", note=note)
    yield _judged(found, ratio, asked.limit, pairs[0][0].seconds or 0.0, "s of each load")


_OF = {"device": "the whole card", "service": "the service on its card", "host": "the service's processes"}


def _resources(baseline: Baseline, loads: Sequence[LoadFigures]) -> Iterator[Criterion]:
    resources: dict[Key, Resource | None] = {"memory": baseline.memory, "power": baseline.power}
    for key, theirs in resources.items():
        if theirs is not None:
            yield _resource(_asked(baseline, key, theirs.value), baseline, theirs, loads)


def _resource(asked: Criterion, baseline: Baseline, theirs: Resource, loads: Sequence[LoadFigures]) -> Criterion:
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
            return _by_share(asked, baseline, exact(ours[of].value), exact(theirs.value), found, note)
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
    theirs = baseline.answers is not None or (
        agreement is not None and any("old platform" in (a.path, a.reference) for a in agreement.paths)
    )
    yield _drop(baseline, agreement, drop, level, samples)
    served = _found(agreement, ("served",), "old platform" if theirs else "float32", baseline.answers)
    of_float = _float_path(agreement)
    compared: dict[Key, tuple[Agreement | None, str]] = {
        "top-1 change": served,
        "cosine": _found(agreement, _FLOAT, "old platform", baseline.answers) if theirs else of_float,
        "served cosine": served,
        "max abs": of_float,
        "mae": of_float,
    }
    for key, (found, why) in compared.items():
        asked, of = _asked(baseline, key), LIMITED[key].of
        if asked.limit is None:
            continue
        if found is None or (not of and found.top1 is None):
            yield replace(asked, note=why or "its outputs are no classes")
            continue
        hidden = sum(output.not_finite for output in found.outputs) if of else 0
        figure = exact(getattr(found, of)) if of else _changed(found)  # the worst of these samples, or their mean
        note = f"{found.path} against {found.reference}, {found.samples} samples"
        note += f", mean cosine {found.mean_cosine:.6f}" if found.outputs else ""
        note += f"; {hidden} values are not finite" if hidden else ""
        known: Evidence = "modelled" if found.emulated else "measured" if level == "modelled" else level
        asked = replace(asked, figure=figure, level=known, note=note, outcome="failed")
        yield asked if hidden else _judged(asked, figure, asked.limit, found.samples, "samples")


def _changed(found: Agreement) -> Estimate:
    """Samples with another best class, in percent."""
    assert found.top1 is not None  # asked before
    same = found.top1
    return Estimate(value=100 * (1 - same.value), low=100 * (1 - same.high), high=100 * (1 - same.low))


def _drop(
    baseline: Baseline, agreement: Agreements | None, drop: Estimate | None, level: Evidence, samples: int
) -> Criterion:
    asked, note = _asked(baseline, "accuracy drop"), "against the float model"
    served, _ = _found(agreement, ("served",), "float32")
    if drop is None and served is not None and served.drop is not None and served.drop.unit == "pp":
        drop, samples, note = served.drop.drop_pp, served.samples, f"against float32, {served.samples} samples"
        level = "modelled" if served.emulated else "measured"
    if drop is None:
        return replace(asked, note="the bundle has no comparison of accuracy")
    asked, zone = replace(asked, figure=drop, level=level, note=note), baseline.limits.get(ZONE)
    if asked.limit is None or not samples or zone is None:
        return _judged(asked, drop, asked.limit, samples, "samples")
    found = decide(Gate.around(asked.limit, zone), drop, samples=samples, unit=asked.unit)
    outcome: Outcome = "not provable" if found.outcome == "undecided" else found.outcome
    return replace(asked, outcome=outcome, note=f"{note}; {found}")


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
