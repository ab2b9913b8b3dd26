"""Was the machine quiet while we timed? What the times themselves say, and what else the machine was doing.

The baseline is the same work in every round, so any change in its times is the machine's. Symptoms come from there;
the suspected causes come from the kernel's counters, read before and after.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

Floats = npt.NDArray[np.float64]

UNSTEADY = 0.05
"""Relative change of the baseline from which timing is called noisy: half of what INT8 often gains by one setting."""
SHAKEN = 4 * UNSTEADY
"""The same, from which not even ratios to the baseline are relied on for others."""
STOLEN = 0.01
THROTTLED = 0.01
"""Shares of the wall time that a hypervisor, or a CPU quota, may take before it counts as a cause."""
OTHERS_CPUS = 0.25
"""CPUs kept busy by other processes that count as a cause, once no CPU is left over for them."""
PREEMPTIONS_PER_S = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The kernel's counters at one moment; None where this machine does not tell.

    Attributes:
        busy_s: CPU seconds of all processes on all CPUs, `stolen_s` those a hypervisor gave to others.
        own_s: CPU seconds of this process, all threads.
        throttled_s: time this control group waited for its CPU quota.
        preemptions: times one of our threads lost its CPU without asking.
    """

    wall_s: float
    cpus: int
    busy_s: float
    stolen_s: float
    own_s: float
    throttled_s: float | None
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """How the same work varied over a run, as relative differences.

    Attributes:
        drift: slowest over fastest third of the run, less 1; signed: positive when the slower one came later.
        spread: robust standard deviation (1.4826 × median absolute deviation) of the rounds.
    """

    drift: float
    spread: float


def read_counters() -> Counters:
    """Counters now; takes well under a millisecond."""
    cpu, usage = psutil.cpu_times(), resource.getrusage(resource.RUSAGE_SELF)
    busy = sum(float(getattr(cpu, name, 0.0)) for name in ("user", "nice", "system", "irq", "softirq"))
    return Counters(
        wall_s=time.perf_counter(),
        cpus=psutil.cpu_count() or os.cpu_count() or 1,
        busy_s=busy,
        stolen_s=float(getattr(cpu, "steal", 0.0)),
        own_s=usage.ru_utime + usage.ru_stime,
        throttled_s=_throttled_s(Path("/sys/fs/cgroup/cpu.stat")),
        preemptions=usage.ru_nivcsw,
    )


def steadiness(baseline_ms: Floats, work: npt.NDArray[np.integer]) -> Steadiness:
    """Drift and spread of the baseline's rounds, with the size of the work taken out.

    Args:
        baseline_ms: [rounds, calls per round], in order of time.
        work: the same shape; calls with equal numbers did equal work.
    """
    effects = np.log(baseline_ms)
    for kind in np.unique(work):
        effects[work == kind] -= np.median(effects[work == kind])
    rounds = np.median(effects, axis=1)
    thirds = [float(np.median(part)) for part in np.array_split(rounds, min(3, len(rounds)))]
    slowest, fastest = int(np.argmax(thirds)), int(np.argmin(thirds))
    drift = float(np.expm1(thirds[slowest] - thirds[fastest]))
    return Steadiness(
        drift=drift if slowest >= fastest else -drift,
        spread=float(1.4826 * np.median(np.abs(rounds - np.median(rounds)))),
    )


def verdict(
    steady: Steadiness, before: Counters, after: Counters, *, of: str, settled: bool = True
) -> tuple[bool, str, bool]:
    """Whether the machine was quiet; why not, in words; and whether ratios to work done beside it may be relied on:
    nobody took CPU time from us, which costs whoever runs more threads more, and its speed changed by less than
    `SHAKEN`.

    Args:
        of: what was the same work in every round: 'the baseline', beside which others were timed, or 'calls'.
        settled: whether the warm-up ended because times were stable.
    """
    symptoms, paired = [], of != "calls"
    if abs(steady.drift) >= UNSTEADY:
        symptoms.append(f"{of} {'slowed' if steady.drift > 0 else 'sped up'} by {abs(steady.drift):.0%} during the run")
    if steady.spread >= UNSTEADY:
        symptoms.append(f"rounds differ by {steady.spread:.0%}")
    if not settled:
        symptoms.append("times did not settle during warm-up")
    causes = _contention(before, after)
    if not symptoms and not causes:
        return True, f"quiet: {of} drifted by {abs(steady.drift):.1%}, rounds differ by {steady.spread:.1%}", True
    found = "; ".join(symptoms) or f"{of} {'is' if paired else 'are'} steady, but may be slower throughout"
    unseen = (
        "no cause in CPU load, steal or quota; heat, the clock or a neighbour on the same caches would not show there"
    )
    why = f"suspected: {'; '.join(causes)}" if causes else unseen
    advice = "What is predicted from these times inherits it."
    if paired and causes:
        advice = (
            "The speedup is paired, so that drift cancels, but on shared CPUs whoever runs fewer threads than the "
            "baseline looks faster than alone: measure again on a free machine before relying on it."
        )
    elif paired:
        advice = "The speedup is paired and holds; compare times in ms with care."
    holds = not causes and max(abs(steady.drift), steady.spread) < SHAKEN
    return False, f"noisy: {found}; {why}. {advice}", holds


def _contention(before: Counters, after: Counters) -> list[str]:
    """Who took CPU time from us: it hurts the one with more threads more, which no pairing can undo."""
    wall_s = max(after.wall_s - before.wall_s, 1e-9)
    own = (after.own_s - before.own_s) / wall_s
    others = (after.busy_s - before.busy_s) / wall_s - own
    causes = []
    # Another process on a free CPU is no competitor: the sum has to come near all CPUs.
    if others >= OTHERS_CPUS and own + others >= 0.9 * after.cpus:
        causes.append(f"other processes kept {others:.1f} of {after.cpus} CPUs busy while we used {own:.1f}")
    stolen = (after.stolen_s - before.stolen_s) / (wall_s * after.cpus)
    if stolen >= STOLEN:
        causes.append(f"the hypervisor took {stolen:.1%} of the CPU time (steal)")
    if before.throttled_s is not None and after.throttled_s is not None:
        throttled = (after.throttled_s - before.throttled_s) / wall_s
        if throttled >= THROTTLED:
            causes.append(f"the container's CPU quota held us back for {throttled:.1%} of the time")
    preemptions_per_s = (after.preemptions - before.preemptions) / wall_s
    if preemptions_per_s >= PREEMPTIONS_PER_S:
        causes.append(f"our threads lost their CPU {preemptions_per_s:.0f} times per second")
    return causes


def _throttled_s(file: Path) -> float | None:
    try:
        fields = dict(line.split() for line in file.read_text().splitlines())
        return int(fields["throttled_usec"]) / 1e6
    except (OSError, KeyError, ValueError):
        return None  # no control group of version 2, or no quota in it
