"""What is said of a sweep before it begins: what it would cost."""

from __future__ import annotations

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


def minutes(seconds: float) -> str:
    """'45 s', '12 min 05 s' or '3 h 20 min'."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
