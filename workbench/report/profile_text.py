"""What a device did in a profiled run, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from workbench.report.words import count_of
from workbench.study.profile_tries import Try
from workbench.values.device_profile import Bubble, Cause, CubeUse, DeviceProfile, Lever
from workbench.values.dimension import Scalar

CAUSES: Mapping[Cause, str] = {
    "host launch": "nothing was queued: the host was at something else",
    "host copy": "copies between host and device",
    "host operator": "an operator beside the cores",
    "synchronization": "waiting for another stream",
    "scheduling": "the next operator was being started",
}
_LONGEST = 48


def profile_lines(profile: DeviceProfile, tries: Sequence[Try] = (), *, top: int = 10) -> list[str]:
    """Where the time goes, when the cores idle and why, and what to try."""
    return [
        *_operators(profile, top),
        *_idle(profile, top),
        *_small(profile),
        *_cube(profile),
        *_tries(tries),
        *(f"note: {note}" for note in profile.notes),
    ]


def mark(profile: DeviceProfile) -> str:
    return "modelled" if profile.modelled else "measured"


def _operators(profile: DeviceProfile, top: int) -> list[str]:
    lines = [
        f"where the time goes ({mark(profile)}): {profile.operators_us / 1000:.3f} ms of operators in "
        f"{count_of(len(profile.operators), 'kind')}"
        + (f", {count_of(profile.executions, 'execution')}" if profile.executions else "")
    ]
    shown, rest = profile.operators[:top], profile.operators[top:]
    width = max((len(operator.op_type) for operator in shown), default=0)
    for operator in shown:
        int8 = " INT8" if operator.int8 else ""
        lines.append(
            f"  {operator.op_type:<{width}}  {operator.share:6.1%}  {operator.total_us:12.1f} us  "
            f"{operator.calls:6d} calls  {operator.core}{int8}"
        )
    if rest:
        lines.append(f"  {len(rest)} more kinds: {sum(operator.share for operator in rest):.1%}")
    lines.append(
        f"casts, layouts and transposes {profile.conversion_share:.1%}, "
        f"quantize and dequantize {profile.quantization_share:.1%}, matrix products {profile.product_share:.1%}"
    )
    if profile.int8_share is not None:
        lines.append(f"of the matrix products' time, {profile.int8_share:.1%} ran on INT8")
    return lines


def _idle(profile: DeviceProfile, top: int) -> list[str]:
    whole = profile.computing_us + profile.idle_us
    if not whole:
        return []
    lines = [
        f"the cores compute {profile.computing_us / whole:.1%} of {profile.span_us / 1000:.3f} ms; "
        f"{profile.idle_us / 1000:.3f} ms they have nothing to do",
    ]
    for use in profile.streams:
        lines.append(
            f"  stream {use.stream} of device {use.device}: idle {use.idle_share:.1%} of {use.span_us / 1000:.3f} ms, "
            f"{count_of(use.tasks, 'task')}"
        )
    shown = profile.bubbles[:top]
    lines += [f"  {_bubble(bubble, whole)}" for bubble in shown]
    rest = {
        "before the first operator and after the last": profile.edges_us,
        "in further gaps": sum(profile.causes.values()) - sum(bubble.total_us for bubble in shown),
        "in gaps below half a microsecond": profile.short_gaps_us,
    }
    return lines + [f"  {us / whole:6.1%}  {where}" for where, us in rest.items() if us > whole / 2000]


def _bubble(bubble: Bubble, whole_us: float) -> str:
    within = ", ".join(f"{cause} {us / bubble.total_us:.0%}" for cause, us in bubble.within.items())
    ran = f" ({', '.join(map(short, bubble.tasks[:2]))})" if bubble.tasks else ""
    return (
        f"{bubble.total_us / whole_us:6.1%}  {short(bubble.before)} -> {short(bubble.after)}: {bubble.times} x, "
        f"{bubble.median_us:.1f} us in the middle, longest {bubble.longest_us:.1f} us; {within}{ran}"
    )


def _small(profile: DeviceProfile) -> list[str]:
    return [
        f"small operators in a row: {row.operators} from {short(row.first)} to {short(row.last)}, {row.times} x, "
        f"{row.total_us / row.times:.1f} us each time ({', '.join(row.types)})"
        for row in profile.small[:5]
    ]


def _cube(profile: DeviceProfile) -> list[str]:
    return [f"matrix products in {use.dtype}: {cube_words(use, profile.chip)}" for use in profile.cube]


def cube_words(use: CubeUse, chip: str) -> str:
    """How much of the chip's rate they reach."""
    achieved, part = use.achieved_tops, use.of_peak
    told = "their shapes do not tell how much they compute" if achieved is None else f"{achieved:.3g} TOPS"
    if part is not None and use.peak_tops is not None:
        told += f", {part:.1%} of the {use.peak_tops:.0f} of {chip}"
    if achieved is not None and use.told_us < use.total_us:
        told += f" (over {use.told_us / use.total_us:.0%} of their time)"
    if use.active_percent is not None:
        told += f"; cores at work {use.active_percent:.1f} % of the cycles, by the profiler"
    return told


def _tries(tries: Sequence[Try]) -> list[str]:
    lines = ["what to try; shares are bounds of what can go, no forecast:"] if tries else []
    for one in tries:
        lines.append(f"  {bound(one.lever)}: {one.lever.finding}")
        if one.candidate is not None:
            changes = ", ".join(f"{name} {yaml_choice(value)}" for name, value in one.lever.changes.items())
            place = f"candidate {one.candidate.short_id} of the space" if not one.missing else "not in the space"
            lines.append(f"      {changes} ({place}): {one.command}")
            if one.missing:
                wanted = "; ".join(f"{name}: choices [{yaml_choice(value)}]" for name, value in one.missing.items())
                lines.append(f"      to have the sweep propose it, add to the space: {wanted}")
        elif one.refused:
            lines.append(f"      not possible here: {one.refused}")
    return lines


def yaml_choice(value: Scalar) -> str:
    """As a space's file has it: a text in quotes, since on and off are none to every reader."""
    return json.dumps(value)


def bound(lever: Lever) -> str:
    """What can go at most, of the run and of what the device itself had to do."""
    own = f" ({lever.of_device:.0%} without the host's own time)" if lever.of_device > lever.at_most + 0.005 else ""
    return f"at most {lever.at_most:.1%}{own}"


def short(name: str) -> str:
    """A long name without its middle; its end tells most."""
    return name if len(name) <= _LONGEST else f"{name[:10]}…{name[11 - _LONGEST :]}"
