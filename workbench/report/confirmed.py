"""What of the front was confirmed on held-out data, what of that was cut to the run's time, and why."""

from __future__ import annotations

from workbench.report.summary import Summary
from workbench.report.words import count_of


def confirmation_sentences(summary: Summary) -> list[str]:
    """Nothing where the whole front was confirmed in full."""
    run, front = summary.run, [member.id for member in summary.front]
    missing = [i for i in front if i not in summary.confirmations]
    if not front or (not summary.confirmations and run is None):
        return []
    found = []
    late = run is not None and run.seconds > run.limit_s / 2  # with more left, time is not what it lacked
    why = f"the time limit of {_duration(run.limit_s)}" if run is not None and late else ""
    why = "the run was stopped" if run is not None and run.reason == "interrupted" else why
    if missing:
        done = f"Confirmed {len(front) - len(missing)} of {count_of(len(front), 'front member')} on held-out data"
        found.append(f"{done}{f': {why}' if why else ''}. The same sweep again goes on with {_names(missing)}.")
    for candidate_id, confirmed in summary.confirmations.items():
        if confirmed.cut:
            found.append(f"Confirmed with less, to keep the time: {candidate_id[:12]} by {', '.join(confirmed.cut)}.")
    if run is not None and run.unloaded:
        found.append(f"Not loaded for real{f': {why}' if why else ''}: {_names(run.unloaded)}.")
    return found


def _names(ids: list[str] | tuple[str, ...]) -> str:
    return ", ".join(candidate_id[:12] for candidate_id in ids)


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else f"{seconds / 60:g} min"
