"""What is said of a sweep beside its results: what it would cost, and whether the calibration data is enough."""

from __future__ import annotations

from workbench.quantization.statistics import Statistics
from workbench.search.plan import Plan


def plan_lines(made: Plan) -> list[str]:
    bound = "" if made.space.exact else "at most "
    cached = ", ".join(f"{count} {kind}" for kind, count in made.store_entries.items()) or "nothing yet"
    return [
        f"space:      {bound}{made.space.candidates} candidates, {made.space.compiles} distinct compiles",
        f"this sweep: {made.trials} candidates, {made.done} done, {made.todo} to do (at most {made.compiles} compiles)",
        f"time:       at most {minutes(made.total_s)} ({made.candidate_s:.1f} s a candidate, from {made.basis}; "
        f"one float call takes {made.call_ms:.2f} ms), and the confirmation of the front",
        f"disk:       at most {made.disk_bytes / 1e9:.2f} GB of {made.free_bytes / 1e9:.1f} GB free",
        f"store:      {cached}",
    ]


def calibration_line(statistics: Statistics) -> str:
    """Whether more calibration samples would change anything, in one sentence (`Statistics.stability`)."""
    unstable = statistics.unstable()
    if not unstable:
        return (
            f"calibration: {statistics.samples} samples are enough; two halves of them show the same ranges to within "
            f"{max(statistics.stability().values(), default=0.0):.0%}"
        )
    worst = unstable[0]
    return (
        f"calibration: {len(unstable)} of {len(statistics.tensors)} tensors have ranges that a few of the "
        f"{statistics.samples} samples decide (worst: {worst}, {statistics.stability()[worst]:.0%} apart between two "
        "halves). Raise calibration.samples, or prefer algorithms that clip."
    )


def minutes(seconds: float) -> str:
    """'45 s', '12 min 05 s' or '3 h 20 min'."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
