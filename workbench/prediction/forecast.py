"""The service of a set of shapes by times that were predicted: at the times themselves, and at both ends of theirs."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.prediction.stage import best_service, only
from workbench.values.candidate import Candidate
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate, Split

_TIE = 0.01
"""Settings this close are told apart by which is simpler, so that times a little longer may give a little more."""


def predicted_throughput(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    times: Mapping[tuple[int, int], Estimate],
    split: Split,
) -> Estimate | None:
    """Answers per second of the best service settings; None where no settings keep the limit even at the least times.

    The settings are those that are best at the least times, so that the upper end is what is possible at best.

    Args:
        times: (batch, length) → milliseconds, of every shape of the set.
    """
    emulated = bench.toolchain(candidate).emulated

    def curve(at: str) -> BatchCurve:
        points = []
        for (batch, length), time in sorted(times.items(), key=lambda item: (item[0][1], item[0][0])):
            ms = float(getattr(time, at))
            exact = Estimate(value=ms, low=ms, high=ms)
            points.append(
                CurvePoint(batch=batch, length=length, calls=0, p50_ms=exact, mean_ms=ms, quantiles_ms=(ms, ms))
            )
        return BatchCurve(
            points=tuple(points),
            stepped=True,
            threads=0,
            clock="modelled" if emulated else "host",
            verdict="predicted from other shapes",
        )

    at_best = best_service(experiment, candidate, bench, curve("low"), split).best
    if at_best is None:
        return None
    chosen = only(at_best.settings)
    found = []
    for end in ("value", "high"):
        result = best_service(experiment, candidate, bench, curve(end), split, choices=chosen)
        found.append((result.best or result.closest).throughput_per_s.value)
    high = at_best.throughput_per_s.high * (1 + _TIE)
    value = min(found[0], high)
    return Estimate(value=value, low=min(found[1], value), high=high)
