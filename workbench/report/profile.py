"""What a device did in a profiled run, for the terminal."""

from __future__ import annotations

from workbench.report.words import count_of
from workbench.values.device_profile import Bubble, DeviceProfile

_LONGEST = 48


def profile_lines(profile: DeviceProfile, *, top: int = 10) -> list[str]:
    """Where the time goes, and when the cores idle and why."""
    return [
        *_operators(profile, top),
        *_idle(profile, top),
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


def short(name: str) -> str:
    """A long name without its middle; its end tells most."""
    return name if len(name) <= _LONGEST else f"{name[:10]}…{name[11 - _LONGEST :]}"
