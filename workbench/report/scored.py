"""How the primary metric is called: 'accuracy' for labels, else its own name, in its own unit and direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.report.words import interval
from workbench.values.measurement import SAME_ANSWERS, Accuracy, Estimate
from workbench.values.metrics import drop_metric
from workbench.values.results import Evaluation

_OF_LABELS = ("accuracy", "entity_f1")
"""Primary metrics of the tasks with labels, which every report calls accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Name, unit and direction of a primary metric.

    Attributes:
        unit: empty for a share of 0..1, whose differences are in percentage points; '%' for a number without a unit
            whose differences are shares of it, such as a perplexity's.
    """

    name: str = "accuracy"
    unit: str = ""
    higher: bool = True

    @property
    def noun(self) -> str:
        return "accuracy" if self.name in _OF_LABELS else self.name

    @property
    def column(self) -> str:
        """The noun as a table's head: of a long one, its last part."""
        return self.noun.rpartition(".")[2]

    @property
    def manner(self) -> str:
        """' (dB, less is better)' where it is no share of which more is better."""
        unit = f"differences in {self.unit}" if self.relative else self.unit
        facts = [*([unit] if unit else []), *([] if self.higher else ["less is better"])]
        return f" ({', '.join(facts)})" if facts else ""

    @property
    def relative(self) -> bool:
        """Whether differences are shares of the value."""
        return self.unit == "%"

    @property
    def drop_unit(self) -> str:
        return self.unit or "pp"

    @property
    def drop_metric(self) -> str:
        """Name of its drop among the numbers of an evaluation."""
        return drop_metric(self.unit)

    def gain(self, before: float, after: float) -> float:
        """From one value of `accuracy`, which is negative where less is better, to another, in `drop_unit`."""
        return 100.0 * (after - before) / abs(before) if self.relative else self._scale * (after - before)

    def own(self, value: float, drop: float) -> float:
        """A difference in `drop_unit` from a value of `accuracy` in that metric's own numbers."""
        return drop * abs(value) / 100.0 if self.relative else drop / self._scale

    @property
    def _scale(self) -> float:
        return 1.0 if self.unit else 100.0

    def drop_words(self, drop: Estimate) -> str:
        """'an accuracy drop of +0.40 pp [+0.10, +0.70]'; of a metric where less is better, by how much it is worse."""
        if drop.low == drop.high == 0:
            return SAME_ANSWERS
        noun = f"an {self.noun} drop" if self.noun == "accuracy" else f"a drop of {self.noun}"
        if not self.higher:
            noun = f"a loss in {self.noun}"
        return f"{noun} of {interval(drop, f' {self.drop_unit}', 2, signed=True)}"

    def change_words(self, gain: float) -> str:
        """'-0.40 pp accuracy': the metric's own change, from a gain that is positive where it becomes better."""
        return f"{gain if self.higher else -gain:+.2f} {self.drop_unit} {self.noun}"

    def value_words(self, accuracy: Accuracy) -> str:
        """'0.9910', or '3.2 dB'."""
        value = accuracy.values[accuracy.primary]
        return f"{value:.3g} {self.unit}" if self.unit and not self.relative else f"{value:.4f}"


def scored(evaluations: Iterable[Evaluation]) -> Scored:
    """What the first of them that was scored is scored by."""
    found = next((e.measurement.accuracy for e in evaluations if e.measurement.accuracy is not None), None)
    return Scored() if found is None else scored_by(found)


def scored_by(accuracy: Accuracy) -> Scored:
    return Scored(name=accuracy.primary, unit=accuracy.unit, higher=accuracy.higher)
