"""Times of an emulated device from what its calls cost: nothing that the host does reaches them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench.evaluation.measure import RawTimes, TimingProtocol, latency_of, planned, shape_ranks
from workbench.targets.base import Feeds, Session, StatesCosts
from workbench.values.errors import MeasureError
from workbench.values.measurement import Latency
from workbench.values.modelled_times.figures import own_ms, with_intervals
from workbench.values.modelled_times.statement import CallCosts, ModelledCalls, TimingModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCall:
    """What one call asks of an emulated device, and its time at the prices of the device's own timing model."""

    ms: float
    model: TimingModel
    costs: CallCosts


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
    """The same figures from what calls cost on an emulated device: copies and execution, nothing of the host.

    Feeds of one shape cost the same, so one call of each shape stands for all of them; the times are laid out in the
    rounds that a measurement would have. Nothing here was measured, and `Latency.clock` says so. Intervals are those
    of what modelled times are off by, where both sessions have the same one.

    Args:
        names: what the two sessions hold; under these names their times are known.
        known: calls by name and shape that earlier calls found; what is new is added.
        baseline_feeds: the same batches as the baseline pads them; None where it pads them alike.

    Raises:
        MeasureError: a call failed, or a session states no costs.
    """
    wanted = protocol.calls if calls is None else calls
    block, theirs_fed, order = planned(feeds, baseline_feeds, protocol, wanted)
    shapes, their_shapes = shape_ranks(feeds), shape_ranks(theirs_fed)
    calls_known = {} if known is None else known
    ours = _modelled(candidate, names[0], feeds, shapes, calls_known)
    theirs = _modelled(baseline, names[1], theirs_fed, their_shapes, calls_known)
    visited = [order[i % len(order)] for i in range(protocol.rounds * block)]
    twice = np.array(visited, dtype=np.int32).reshape(protocol.rounds, block).repeat(2, axis=0).reshape(-1)
    raw = RawTimes(
        candidate_ms=np.array([call.ms for call in ours], np.float32)[shapes[twice]],
        baseline_ms=np.array([call.ms for call in theirs], np.float32)[their_shapes[twice]],
        feed=twice,
        round=np.repeat(np.arange(protocol.rounds, dtype=np.int32), 2 * block),
    )
    words = "modelled, not measured: from the costs that the emulated device states"
    stated = _stated(ours, theirs, shapes[twice], their_shapes[twice])
    if stated is not None:
        words += "; intervals are those of what modelled times are off by"
    latency = replace(latency_of(raw, batch, True, words, protocol.seed), clock="modelled", modelled=stated)
    return with_intervals(latency), raw


def modelled_call(session: Session, feed: Feeds) -> ModelledCall:
    """One call, whose time is that of its stated costs.

    Raises:
        MeasureError: the call failed, or the session states no costs.
    """
    session.run(feed)
    stated = session.costs() if isinstance(session, StatesCosts) else None
    if stated is None:
        raise MeasureError(
            f"{type(session).__name__} is of an emulated device and states no costs of its calls, so that they have no "
            "time: give it `costs` (workbench.targets.base.StatesCosts)."
        )
    model, costs = stated
    return ModelledCall(ms=own_ms(model, costs), model=model, costs=costs)


def _modelled(
    session: Session,
    name: str,
    feeds: Sequence[Feeds],
    shapes: npt.NDArray[np.int64],
    known: dict[tuple[str, str], ModelledCall],
) -> list[ModelledCall]:
    """[shapes] one call of each shape, in the order of their numbers."""
    found = []
    for shape in range(int(shapes.max()) + 1):
        feed = feeds[int(np.argmax(shapes == shape))]
        key = (name, repr(sorted((port, array.shape) for port, array in feed.items())))
        if key not in known:
            known[key] = modelled_call(session, feed)
        found.append(known[key])
    return found


def _stated(
    ours: Sequence[ModelledCall],
    theirs: Sequence[ModelledCall],
    shapes: npt.NDArray[np.int64],
    their_shapes: npt.NDArray[np.int64],
) -> ModelledCalls | None:
    """What the timed calls cost; None where the two are of different timing models."""
    model = ours[0].model
    if any(call.model != model for call in (*ours, *theirs)):
        return None
    pairs, calls = np.unique(np.stack([shapes, their_shapes]), axis=1, return_counts=True)
    return ModelledCalls(
        clock=model,
        candidate=tuple(call.costs for call in ours),
        baseline=tuple(call.costs for call in theirs),
        pairs=tuple((int(a), int(b), int(n)) for a, b, n in zip(*pairs, calls, strict=True)),
    )
