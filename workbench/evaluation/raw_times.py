"""Every timed call of a candidate and the baseline beside it: kept whole, and the figures drawn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ToolchainError
from workbench.values.measurement import Estimate, Latency
from workbench.values.significance import bootstrap_rounds, midmean
from workbench.values.system.files import temporary_beside

Times = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int32]

P99_SAMPLES = 1000
"""Fewest timed calls that give a P99: ten of them lie above it. Fewer give no P99 rather than a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTimes:
    """Every timed call. Element i of the four arrays is one call of each session, over the same feed and round.

    Attributes:
        candidate_ms, baseline_ms: float32 [samples].
        feed: int32 [samples], index into the feeds that were given.
        round: int32 [samples], ascending; every round has as many samples.
    """

    candidate_ms: Times
    baseline_ms: Times
    feed: Indices
    round: Indices

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.candidate_ms, self.baseline_ms, self.feed, self.round)}
        if len(shapes) != 1 or self.round.ndim != 1 or len(self.round) == 0:
            raise ValueError(f"raw times must be four equal arrays [samples], got shapes {sorted(shapes)}")
        rounds = np.unique(self.round)
        if not np.array_equal(self.round, np.repeat(rounds, len(self.round) // len(rounds))):
            raise ValueError("every round must hold as many samples, in order")
        times = np.concatenate([self.candidate_ms, self.baseline_ms])
        if not (np.isfinite(times).all() and (times > 0).all()):
            raise ValueError("a time is not a positive number")

    def by_round(self, values: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
        """One value per sample as float64 [rounds, samples per round]."""
        return values.astype(np.float64).reshape(len(np.unique(self.round)), -1)


def speedup(raw: RawTimes, *, seed: int) -> Estimate:
    """Baseline time over candidate time: the geometric midmean over rounds of the midmean over paired calls.

    The interval resamples rounds (`significance.bootstrap_rounds`), so it speaks of this machine and these feeds.
    """
    ratios = raw.by_round(np.log(raw.baseline_ms.astype(np.float64) / raw.candidate_ms))
    found = bootstrap_rounds(midmean(ratios)[:, None], midmean, seed=seed)
    value, low, high = (math.exp(each) for each in (found.value, found.low, found.high))
    return Estimate(value=value, low=low, high=high, confidence=found.confidence)


def latency_of(
    raw: RawTimes, batch: int, warmup_calls: int, quiet: bool, words: str, seed: int, *, holds: bool = True
) -> Latency:
    times = raw.candidate_ms.astype(np.float64)
    mean_ms = float(times.mean())
    return Latency(
        batch=batch,
        samples=len(times),
        warmup_calls=warmup_calls,
        p50_ms=bootstrap_rounds(raw.by_round(times), lambda drawn: np.median(drawn, axis=-1), seed=seed),
        p95_ms=float(np.percentile(times, 95)),
        p99_ms=float(np.percentile(times, 99)) if len(times) >= P99_SAMPLES else None,
        mean_ms=mean_ms,
        throughput_per_s=1000 * batch / mean_ms,
        speedup=speedup(raw, seed=seed),
        baseline_p50_ms=float(np.median(raw.baseline_ms)),
        quiet=quiet,
        verdict=words,
        holds=holds,
    )


def save_raw_times(raw: RawTimes, path: Path) -> None:
    """Write the four arrays to an .npz file, whole or not at all; its folder must exist."""
    try:
        with temporary_beside(path) as draft, draft.open("wb") as stream:
            np.savez_compressed(
                stream, candidate_ms=raw.candidate_ms, baseline_ms=raw.baseline_ms, feed=raw.feed, round=raw.round
            )
    except OSError as error:
        raise ToolchainError(f"{path}: raw times cannot be written: {error}. Free or change the disk.") from error
