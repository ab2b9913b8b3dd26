"""How far a judgement rests on a clock that nobody checked, as a value; `prediction.robustness` makes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What becomes of one candidate under the clocks that may be right.

    Attributes:
        on_front: share of the clocks under which it is on the front.
        best: share under which it is the best in the leading objective, and so would be recommended.
    """

    candidate_id: str
    on_front: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBenchmark:
    """A measurement on a real device that would help to settle the order.

    Attributes:
        unknown, about: what it tells.
        command: as typed on a machine with the device.
        changed_under: share of the values it may have under which, moved alone, the rarer answer to a statement holds.
    """

    unknown: str
    about: str
    command: str
    changed_under: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """A front and a recommendation, judged under every clock that may be right.

    Attributes:
        clock: name of the clock that is run.
        clocks: how many others were asked.
        lead: the leading objective.
        shares: of every candidate that is on the front under some clock, the most frequent first.
        certainty: of the least certain of these statements, under which share of the clocks its likelier answer holds:
            0.5 is a toss. Nobody measured how likely any of the clocks is.
        benchmarks: measurements that would tell more of it, the most telling first; none where the clocks agree.
    """

    clock: str
    clocks: int
    lead: str
    shares: tuple[Share, ...]
    certainty: float
    benchmarks: tuple[MicroBenchmark, ...]

    def of(self, candidate_id: str) -> Share | None:
        """None for a candidate that is on the front under no clock."""
        return next((share for share in self.shares if share.candidate_id == candidate_id), None)
