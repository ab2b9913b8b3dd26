"""A gate whose errors are known: may a model lose what it loses? Passed, failed or undecided, by paired samples.

A limit on a noisy figure alone passes losses over it, and blocks losses within it, as often as the noise says. Here a
limit has an *indifference zone*: whoever loses at least limit + zone must not pass, whoever loses at most limit − zone
must not fail, and between the two either answer is right. Through a whole release each of the two wrong answers comes
in at most 5 %:

    search       looks at growing parts of validation, which may stop        alarm: EARLY, over all looks together
    validation   the figure decides who goes on                              alarm: STEP, with as many samples as needed
    held out     interval against limit + zone and limit - zone              pass: STEP, and ERROR over all confirmed
                                                                             alarm: STEP
    promotion    the same against float32, and against the current bundle    alarm: STEP

A pass takes all of them, so its error is that of one; alarms add up, so their shares do. Where the samples do not
suffice for this, the gate is undecided, says how many would, and what it does then is the user's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import CONFIDENCE, Estimate
from workbench.values.paired_scores import PairedScores
from workbench.values.significance import Outcomes, check_pair

Floats = npt.NDArray[np.float64]
GateOutcome = Literal["passed", "failed", "undecided"]
WhenUndecided = Literal["figure", "refuse"]
"""The figure decides as it would without a gate, and how often that is wrong is said; or who is undecided fails."""

ERROR = 0.05
"""Largest probability of a false pass, and of a false alarm, outside the zone and through a whole release."""
EARLY = 0.01
"""Of ERROR, for looks before all samples of a split are scored, over all of them together."""
STEP = (ERROR - EARLY) / 3
"""Of ERROR, for each place that can raise an alarm on all samples."""
SHARE_OF_LIMIT = 0.5
"""The zone where nobody states one: a limit of 0.5 pp then tells 0.25 from 0.75."""
SMALLEST_LOOK = 64
_SIXTEENTHS = (1, 2, 3, 4, 6, 8, 12)
_MOST_ROOT = 1e5
"""Nobody has its square of samples."""
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A limit on a drop with its zone, both in the unit of the drop.

    Attributes:
        zone: on either side of the limit; 0 for none: then the limit itself must be certain to be kept or broken.
    """

    limit: float
    zone: float
    undecided: WhenUndecided = "figure"

    @classmethod
    def around(cls, limit: float, zone: float | None = None, undecided: WhenUndecided | None = None) -> Gate:
        """Whoever states a zone asks for its errors: then who is undecided fails. Else the figure decides, as ever."""
        usual: WhenUndecided = "figure" if zone is None else "refuse"
        zone = SHARE_OF_LIMIT * abs(limit) if zone is None else zone
        return cls(limit=limit, zone=zone, undecided=undecided or usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a gate found.

    Attributes:
        keeps: whether the drop counts as within the limit; of who is undecided, by the user's choice.
        samples, needed: that it rests on, and that would decide if the figure stays; None where none would.
        figure_error: how often the figure alone is wrong at either end of the zone, with these samples.
    """

    gate: Gate
    unit: str
    outcome: GateOutcome
    keeps: bool
    samples: int
    needed: int | None
    figure_error: float

    def __str__(self) -> str:
        """One line, with both errors."""
        at = f"{self.gate.limit:g}" + (f" ± {self.gate.zone:g}" if self.gate.zone else "") + f" {self.unit}"
        errors = f"false pass and false alarm at most {100 * ERROR:g} % each"
        if self.outcome != "undecided":
            return f"gate at {at}: {self.outcome}, {errors}"
        more = "no number would do" if self.needed is None else f"about {self.needed} would do if the figure stays"
        then = f"its figure decides, wrongly in up to {100 * self.figure_error:.0f} %"
        then = then if self.gate.undecided == "figure" else "undecided does not pass"
        return f"gate at {at}: undecided, {self.samples} samples are too few for {errors}, {more}; {then}"


def decide(gate: Gate, drop: Estimate, *, samples: int, unit: str, among: Sequence[Estimate] = ()) -> Decision:
    """Hold a paired difference with its 95 % interval against a gate.

    Two one-sided tests, of limit + zone and of limit − zone (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987,
    657-680); their p-values come from the distance of the interval's end, whose asymmetry they thereby keep. Only a
    figure within the limit passes and only one beyond it fails, so no outcome contradicts its figure.

    Args:
        among: drops of all candidates that were held against this gate on the same samples, of which the best may be
            taken: passes then hold for all at once (Holm, Scand. J. Stat. 6, 1979, 65-70).
    """
    value, up, down = drop.value, drop.high - drop.value, drop.value - drop.low
    own = _p_value(gate.limit + gate.zone - value, up)
    others = sorted(_p_value(gate.limit + gate.zone - one.value, one.high - one.value) for one in among) or [own]
    at_once = max(p * (len(others) - place) for place, p in enumerate(others) if p <= own or place == 0)
    outcome: GateOutcome = "undecided"
    if value <= gate.limit and own <= STEP and at_once <= ERROR:
        outcome = "passed"
    elif value > gate.limit and _p_value(value - (gate.limit - gate.zone), down) <= STEP:
        outcome = "failed"
    keeps = value <= gate.limit and (outcome == "passed" or gate.undecided == "figure")
    half, distance = (up if value <= gate.limit else down), gate.zone + abs(gate.limit - value)
    root = math.sqrt(samples) * half / _Z * -_NORMAL.inv_cdf(min(STEP, ERROR / len(others)))
    needed = math.ceil((root / distance) ** 2) if root < _MOST_ROOT * distance else None
    return Decision(
        gate=gate,
        unit=unit,
        outcome=outcome,
        keeps=keeps,
        samples=samples,
        needed=needed if needed is None else _two_digits(needed),
        figure_error=_p_value(gate.zone, max(up, down)),
    )


def _p_value(distance: float, half: float) -> float:
    """Of a figure so far within an edge, whose 95 % interval reaches `half` towards it."""
    if half <= 0:  # nothing is uncertain, as where every answer is the reference's own
        return 0.0 if distance > 0 else 1.0
    return 1 - _NORMAL.cdf(_Z * distance / half)


def _two_digits(count: int) -> int:
    """Rounded up: the figure that it rests on is no more exact."""
    step: int = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / step) * step


def look_schedule(total: int) -> tuple[int, ...]:
    """How many samples have been scored at each look before the whole split: sixteenths of `total`, first close, then
    further apart. Looks at fewer than 64 samples can stop nobody and are left out."""
    return tuple(size for part in _SIXTEENTHS if (size := total * part // 16) >= SMALLEST_LOOK)


def certain_violation(
    baseline: Outcomes, candidate: Outcomes, *, limit_pp: float, alpha: float = EARLY
) -> float | None:
    """By how much the drop certainly exceeds the limit, in percentage points; None while it may still be within.

    The lower end of an interval at `alpha` divided among the looks of `look_schedule` (Pocock, Biometrika 64, 1977,
    191-199, with Bonferroni's boundary), less the limit. A metric without bounds is never certain, because one sample
    yet to come could outweigh all that were seen.

    Args:
        baseline, candidate: outcomes of the first n samples of a split *in random order*. A sorted file makes its
            first samples unlike the rest, and then no test on them is sound.
        limit_pp: what the drop must exceed for certain, in percentage points; for scores with a unit of their own, in
            that unit, as the result then is. Of a gate, the lower end of its zone.
    """
    check_pair(baseline, candidate)
    before, after = _scores(baseline), _scores(candidate)
    if before.bounds is None:
        return None
    entities = isinstance(baseline, np.ndarray) and baseline.ndim == 2
    rows = np.column_stack([before.turned, before.denominators, after.turned, after.denominators])
    width = before.bounds[1] - before.bounds[0]
    least = least_drop(rows, np.ones(len(rows)), width=width, entities=entities, alpha=alpha)
    excess = before.drop_scale * float(least) - limit_pp
    return excess if excess > 0 else None


def least_drop(
    rows: Floats,
    repeats: npt.NDArray[np.number],
    *,
    width: float = 1.0,
    entities: bool = False,
    alpha: float = EARLY,
) -> Floats:
    """Lower end of the interval of the drop at one look, as a ratio.

    By linearization, with the variance of two further samples, one wholly lost and one wholly won (Agresti and Min,
    Statistics in Medicine 24, 2005, 729-740): what was not seen yet counts, and losses that are few are conservative.
    Graded samples seldom change by the whole range, so of these half of it counts.

    Args:
        rows: [r, 4], numerator and denominator of the baseline, then of the candidate, turned so that more is better.
        repeats: [..., r], how often each row was seen, of as many runs as one likes.
        width: of the range of a sample's ratio.
        entities: rows count entities of sentences; the two further samples are of one entity.
    """
    a, b, a2, b2 = rows.T
    total, total2 = (np.maximum(repeats @ weights, 1e-300)[..., None] for weights in (b, b2))
    before, after = (repeats @ a)[..., None] / total, (repeats @ a2)[..., None] / total2
    parts = (a - before * b) / total - (a2 - after * b2) / total2
    width = width / 2 if (rows % 1).any() else width
    unseen = width * (2 / total[..., 0] if entities else 1 / repeats.sum(axis=-1))
    error = np.sqrt((repeats * parts**2).sum(axis=-1) + 2 * unseen**2)
    return np.asarray((before - after)[..., 0] + _NORMAL.inv_cdf(alpha / len(_SIXTEENTHS)) * error, dtype=np.float64)


def _scores(outcomes: Outcomes) -> PairedScores:
    if isinstance(outcomes, PairedScores):
        return outcomes
    counts = outcomes.astype(np.float64)
    if counts.ndim == 1:
        return PairedScores(numerators=counts, denominators=np.ones(len(counts)))
    return PairedScores(numerators=2 * counts[:, 0], denominators=counts[:, 1] + counts[:, 2])
