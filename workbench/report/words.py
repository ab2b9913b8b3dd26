"""How every report names a candidate, reads the numbers of an evaluation and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workbench.values.candidate import Candidate
from workbench.values.installed_targets import installed_target
from workbench.values.measurement import SAME_ANSWERS, Accuracy, Estimate, Latency, OwnIntervals, ServiceFigures
from workbench.values.metrics import METRICS, loss_metric, metrics
from workbench.values.results import Evaluation
from workbench.values.setting_groups import describe


def title(candidate: Candidate, baseline_id: str, *, engine: bool = False) -> str:
    """What a candidate is, for a row: its description, its threads, and its batch where it is not 1.

    Threads are always said: a row that left out a default would leave its reader to guess next to one that has them.

    Args:
        engine: say every engine's name, where candidates of several engines stand side by side.
    """
    target = installed_target(candidate.target)
    words = f"{target.title}, " if engine and not target.named else ""
    words += describe(candidate) + (" (float baseline)" if candidate.id == baseline_id else "")
    if candidate.has("serving.intra_op_threads"):
        words += f", {count_of(candidate.serving.intra_op_threads, 'thread')}"
    if candidate.serving.streams not in (None, 1):
        words += f", {candidate.serving.streams} streams"
    if candidate.serving.batch != 1:
        words += f", batch {candidate.serving.batch}"
    return words


def differing_parameters(candidates: Sequence[Candidate]) -> list[str]:
    """Names of the settings in which the candidates are not all alike, in the order of `Candidate.parameters`."""
    tables = [c.parameters() for c in candidates]
    names = dict.fromkeys(name for table in tables for name in table)
    parts = list(dict.fromkeys(name.split(".")[0] for name in names))
    differing = [name for name in names if len({repr(table.get(name)) for table in tables}) > 1]
    return sorted(differing, key=lambda name: parts.index(name.split(".")[0]))


def p50_words(latency: Latency) -> str:
    """Its median in milliseconds, corrected for drift: '1.20', modelled with its error '1.20 [0.80, 2.10]'."""
    p50 = latency.undrifted_p50_ms
    return f"{p50.value:.2f}" if latency.modelled is None else interval(p50, "", 2)


def interval(estimate: Estimate, unit: str, digits: int, *, signed: bool = False) -> str:
    """'1.52x [1.48, 1.56]'."""
    sign = "+" if signed else ""
    low, high = (f"{v:{sign}.{digits}f}" for v in (estimate.low, estimate.high))
    return f"{estimate.value:{sign}.{digits}f}{unit} [{low}, {high}]"


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def over(metric: str, by: float) -> str:
    """'accuracy_loss_pp by 0.3 pp'; a metric of one of the model's outputs stands as it is called."""
    unit = METRICS[metric].unit if metric in METRICS else ""
    return f"{metric} by {by:.3g}" + (f" {unit}" if unit else "")


def compiled_words(compiled: int, shared: int) -> str:
    """'3 compiler runs, 9 more files shared'; nothing where a target does not compile a file for each shape."""
    runs = count_of(compiled, "compiler run")
    if not shared:
        return runs if compiled else ""
    return f"{runs}, {count_of(shared, 'file')} shared"


SPEED = tuple(name for name, metric in METRICS.items() if metric.source == "latency")
SERVICE = tuple(name for name, metric in METRICS.items() if metric.source == "service")
ACCURACY = tuple(name for name, metric in METRICS.items() if metric.source == "accuracy")
"""The last two of language models, of which one is the primary metric (`inputs.experiment` refuses the other)."""


def numbers_of(evaluation: Evaluation, baseline_id: str) -> dict[str, float]:
    """`metrics`, with the baseline's drop against itself, which is 0, made explicit."""
    numbers, accuracy = metrics(evaluation), evaluation.measurement.accuracy
    if evaluation.candidate.id == baseline_id and "accuracy" in numbers:
        numbers.setdefault(loss_metric("" if accuracy is None else accuracy.unit), 0.0)
    return numbers


def loss_of(evaluation: Evaluation, baseline_id: str) -> Estimate | None:
    """In percentage points, or in the metric's own unit where that is no share of 0..1; 0 for the baseline, None where
    it was not measured."""
    accuracy = evaluation.measurement.accuracy
    if accuracy is not None and accuracy.comparison is not None:
        return accuracy.comparison.drop_pp
    if accuracy is not None and evaluation.candidate.id == baseline_id:
        return Estimate(value=0.0, low=0.0, high=0.0)
    return None


def speedup_of(evaluation: Evaluation) -> Estimate:
    """Of a complete evaluation."""
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    return latency.speedup


def service_estimate(figures: ServiceFigures | OwnIntervals, metric: str) -> Estimate:
    """One of `SERVICE`, with its interval."""
    found: Estimate = getattr(figures, metric.removeprefix("service_"))
    return found


def cost_of(evaluation: Evaluation, metric: str, baseline_id: str) -> float:
    """The metric turned so that less is better."""
    value = numbers_of(evaluation, baseline_id)[metric]
    return -value if METRICS[metric].direction == "maximize" else value


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
    def manner(self) -> str:
        """' (dB, less is better)' where it is no share of which more is better."""
        unit = f"differences in {self.unit}" if self.unit == "%" else self.unit
        facts = [*filter(None, [unit]), *([] if self.higher else ["less is better"])]
        return f" ({', '.join(facts)})" if facts else ""

    @property
    def loss_unit(self) -> str:
        return self.unit or "pp"

    @property
    def loss_metric(self) -> str:
        """Name of its drop among the numbers of an evaluation."""
        return loss_metric(self.unit)

    def own(self, value: float, drop: float) -> float:
        """A difference in `loss_unit` from a value of `accuracy` in that metric's own numbers."""
        return drop * abs(value) / 100.0 if self.unit == "%" else drop if self.unit else drop / 100.0

    def loss_words(self, drop: Estimate) -> str:
        """'an accuracy loss of +0.40 pp [+0.10, +0.70]'; where less is better, by how much it is worse."""
        if drop.low == drop.high == 0:
            return SAME_ANSWERS
        noun = "an accuracy loss" if self.noun == "accuracy" else f"a loss in {self.noun}"
        return f"{noun} of {interval(drop, f' {self.loss_unit}', 2, signed=True)}"

    def value_words(self, accuracy: Accuracy) -> str:
        """'0.9910', or '3.2 dB'."""
        value = accuracy.values[accuracy.primary]
        return f"{value:.3g} {self.unit}" if self.unit not in ("", "%") else f"{value:.4f}"


def scored(evaluations: Iterable[Evaluation]) -> Scored:
    """What the first of them that was scored is scored by."""
    found = next((e.measurement.accuracy for e in evaluations if e.measurement.accuracy is not None), None)
    return Scored() if found is None else scored_by(found)


def scored_by(accuracy: Accuracy) -> Scored:
    return Scored(name=accuracy.primary, unit=accuracy.unit, higher=accuracy.higher)
