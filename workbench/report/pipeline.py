"""What a search of a whole pipeline found, as lines of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.report.recommendation import sentence
from workbench.report.table import laid_out
from workbench.search.joint import Joint, Loss, gate_of
from workbench.values.measurement import Estimate
from workbench.values.sequential import Gate

COLUMNS = ("", "requests/s", "P99 ms", "loss", "evidence")


def pipeline_lines(
    name: str,
    stages: Sequence[str],
    joints: Sequence[Joint],
    chosen: Joint | None,
    recipes: Mapping[str, str],
    limits: str,
    gate: Gate,
    width: int,
) -> list[str]:
    """The verdict, a row for each combination that was measured end to end, and what the chosen one consists of.

    Args:
        joints: the float pipeline first.
        recipes: candidate id → in words.
        limits: of loss and P99, in words.
    """
    baseline, others = joints[0], sorted(joints[1:], key=lambda one: -_rate(one))
    found = [f"{name}: {' → '.join(stages)}{' [emulated]' if baseline.emulated else ''}", ""]
    if chosen is None or chosen is baseline:
        found.append(f"No combination keeps {limits} and serves more than float.")
    else:
        times = _rate(chosen) / _rate(baseline)
        weaker = chosen if chosen.measured_per_s is None else baseline
        found.append(f"Recommended: {times:.2f}x the requests/s of the float pipeline ({_how(weaker)}); {limits}.")
        found += [sentence(decision)] if (decision := gate_of(gate, chosen, joints)) is not None else []
    rows = [COLUMNS, *(_row(one, baseline, chosen) for one in (baseline, *others))]
    found += ["", *(line for row in laid_out(rows, width) for line in row)]
    if chosen is not None:
        found.append("")
        for stage in stages:
            identity = chosen.recipes[stage]
            found.append(f"{stage}: {identity[:12]}  {recipes.get(identity, '')}; {chosen.settings[stage]}")
    found += [f"left out: {_who(one, baseline, chosen)}: {one.note}" for one in joints if one.note]
    return found


def _row(one: Joint, baseline: Joint, chosen: Joint | None) -> tuple[str, ...]:
    rate = _interval(one.measured_per_s) if one.measured_per_s is not None else f"{one.predicted_per_s:.1f}"
    p99 = f"{one.measured_p99_ms.value:.0f}" if one.measured_p99_ms is not None else f"{one.predicted_p99_ms:.0f}"
    quality = one.held or one.searched
    said = f"{_how(one)}; loss {'held-out' if one.held is not None else 'measured in the search'}"
    if one is baseline:
        said = _how(one)
    return _who(one, baseline, chosen), rate, p99, _loss(quality), said


def _who(one: Joint, baseline: Joint, chosen: Joint | None) -> str:
    if one is baseline:
        return "float"
    if one is chosen:
        return "recommended"
    if one.by_stage:
        return "stage by stage"
    return " ".join(identity[:6] for identity in one.recipes.values())


def _loss(quality: Loss | None) -> str:
    if quality is None:
        return ""
    primary = next(iter(quality.values.items()))
    if quality.loss is None:
        return f"{primary[0]} {primary[1]:.4g}"
    one = quality.loss
    return f"{one.value:+.2f} {quality.unit} [{one.low:+.2f}, {one.high:+.2f}]"


def _interval(value: Estimate) -> str:
    return f"{value.value:.1f} [{value.low:.1f}, {value.high:.1f}]"


def _rate(one: Joint) -> float:
    return one.predicted_per_s if one.measured_per_s is None else one.measured_per_s.value


def _how(one: Joint) -> str:
    predicted = "modelled" if one.emulated else "predicted"
    return predicted if one.measured_per_s is None else "measured under load"
