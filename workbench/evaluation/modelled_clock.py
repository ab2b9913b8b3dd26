"""Times by an emulated device's own clock, where nothing can be measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench.evaluation.feed_order import scattered, shape_ranks, side_by_side
from workbench.evaluation.measure import TimingProtocol
from workbench.evaluation.raw_times import RawTimes, Times, latency_of
from workbench.targets.base import DeviceSession, Feeds, Session, StatesCosts
from workbench.values.clocks.figures import with_intervals
from workbench.values.clocks.statement import CallCosts, ModelledCalls, ModelledClock
from workbench.values.errors import MeasureError
from workbench.values.measurement import Latency

_MODELLED_CALLS = 25
"""At most; on a quiet machine the first two agree, on a busy one few calls are left alone."""
_AGREE = 1.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCall:
    """One call by an emulated device's clock.

    Attributes:
        stated: the clock and what the call costs; None where its session does not tell.
    """

    ms: float
    stated: tuple[ModelledClock, CallCosts] | None = None


def time_modelled(
    candidate: Session,
    baseline: Session,
    feeds: Sequence[Feeds],
    batch: int,
    protocol: TimingProtocol,
    *,
    calls: int | None = None,
    names: tuple[str, str] = ("candidate", "baseline"),
    known: dict[tuple[str, str], ModelledCall] | None = None,
    baseline_feeds: Sequence[Feeds] | None = None,
) -> tuple[Latency, RawTimes]:
    """The same figures by an emulated device's own clock: copies and execution, nothing of the host.

    Such a clock gives equal feeds equal times, so one for each shape of the feeds stands for all of them; the
    times are laid out in the rounds that a measurement would have. Nothing here was measured, and `Latency.clock`
    says so. Intervals are those of the clocks that may be right, where both sessions state what their calls cost.

    Args:
        names: what the two sessions hold; under these names their times are known.
        known: calls by name and shape that earlier calls found; what is new is added.
        baseline_feeds: the same batches as the baseline pads them; None where it pads them alike.

    Raises:
        MeasureError: a call failed, or a session has no device clock.
    """
    if not feeds:
        raise ValueError("no feeds to time")
    wanted = protocol.calls if calls is None else calls
    block = math.ceil(wanted / (2 * protocol.rounds))
    theirs_fed = feeds if baseline_feeds is None else baseline_feeds
    order = scattered(side_by_side(feeds, theirs_fed))
    shapes, their_shapes = shape_ranks(feeds), shape_ranks(theirs_fed)
    calls_known = {} if known is None else known
    ours = _modelled(candidate, names[0], feeds, shapes, calls_known)
    theirs = _modelled(baseline, names[1], theirs_fed, their_shapes, calls_known)
    visited = [order[i % len(order)] for i in range(protocol.rounds * block)]
    twice = np.array(visited, dtype=np.int32).reshape(protocol.rounds, block).repeat(2, axis=0).reshape(-1)
    raw = RawTimes(
        candidate_ms=_times(ours)[shapes[twice]],
        baseline_ms=_times(theirs)[their_shapes[twice]],
        feed=twice,
        round=np.repeat(np.arange(protocol.rounds, dtype=np.int32), 2 * block),
    )
    words = "modelled, not measured: the emulated device's clock has no noise"
    stated = _stated(ours, theirs, shapes[twice], their_shapes[twice])
    if stated is not None:
        words += ", and intervals are those of the clocks that may be right"
    latency = replace(latency_of(raw, batch, 0, True, words, protocol.seed), clock="modelled", modelled=stated)
    return with_intervals(latency), raw


def modelled_call(session: DeviceSession, feed: Feeds) -> ModelledCall:
    """`modelled_call_ms`, with what the call costs where the session tells."""
    spent_ms = modelled_call_ms(session, feed)
    return ModelledCall(ms=spent_ms, stated=session.costs() if isinstance(session, StatesCosts) else None)


def modelled_call_ms(session: DeviceSession, feed: Feeds) -> float:
    """Milliseconds of one call by the device's clock: that of two calls that agree, else the least of a few.

    Between the parts of a call the host may be kept by other programs so long that the clock takes it for the caller's
    own time. Nothing makes a call shorter than it is.
    """
    found: list[float] = []
    for _ in range(_MODELLED_CALLS):
        session.run(feed)
        found.append(session.times().total_ms)
        least = sorted(found)[:2]
        if len(least) == 2 and least[1] <= _AGREE * least[0]:
            break
    return min(found)


def _modelled(
    session: Session,
    name: str,
    feeds: Sequence[Feeds],
    shapes: npt.NDArray[np.int64],
    known: dict[tuple[str, str], ModelledCall],
) -> list[ModelledCall]:
    """[shapes] one call of each shape, in the order of their numbers."""
    if not isinstance(session, DeviceSession):
        raise MeasureError(f"{type(session).__name__} has no clock of its own, so its time cannot be modelled.")
    found = []
    for shape in range(int(shapes.max()) + 1):
        feed = feeds[int(np.argmax(shapes == shape))]
        key = (name, repr(sorted((port, array.shape) for port, array in feed.items())))
        if key not in known:
            known[key] = modelled_call(session, feed)
        found.append(known[key])
    return found


def _times(calls: Sequence[ModelledCall]) -> Times:
    return np.array([call.ms for call in calls], dtype=np.float32)


def _stated(
    ours: Sequence[ModelledCall],
    theirs: Sequence[ModelledCall],
    shapes: npt.NDArray[np.int64],
    their_shapes: npt.NDArray[np.int64],
) -> ModelledCalls | None:
    """What the timed calls cost; None where a session does not tell, or the two tell of different clocks."""
    stated = [call.stated for call in (*ours, *theirs)]
    told = [one for one in stated if one is not None]
    if len(told) < len(stated) or any(clock != told[0][0] for clock, _ in told):
        return None
    costs = [cost for _, cost in told]
    pairs, calls = np.unique(np.stack([shapes, their_shapes]), axis=1, return_counts=True)
    return ModelledCalls(
        clock=told[0][0],
        candidate=tuple(costs[: len(ours)]),
        baseline=tuple(costs[len(ours) :]),
        pairs=tuple((int(a), int(b), int(n)) for a, b, n in zip(*pairs, calls, strict=True)),
    )
