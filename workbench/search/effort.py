"""How much of what an experiment asks for is measured: all of it, or less where the run's time is short.

A search measures all its candidates with one effort, so that they compare; each confirmation has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.inputs.experiment import Experiment
from workbench.values.measurement import Split
from workbench.values.results import Evaluation

FEWEST_CALLS = 50
"""Two a round: below that a round has no middle."""
FEWEST_SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Shares of what the experiment asks for.

    Attributes:
        calls: of the timed calls and of the rounds over a curve's shapes; `load` of the seconds under load that are
            reckoned with; `samples` of the split.
        curve: False predicts the service by the batch curve that the search timed, instead of timing it again.
        loaded: so it is predicted because a load measures the service next, which is no less than what was asked.
    """

    calls: float = 1.0
    load: float = 1.0
    samples: float = 1.0
    curve: bool = True
    loaded: bool = False

    def timed_calls(self, experiment: Experiment) -> int:
        asked = experiment.measure.calls
        return min(asked, max(FEWEST_CALLS, round(asked * self.calls)))

    def scored_samples(self, experiment: Experiment, split: Split) -> int:
        there = experiment.dataset.size(split)
        return min(there, max(FEWEST_SAMPLES, round(there * self.samples)))

    def scored(self, experiment: Experiment, split: Split) -> Experiment:
        """The experiment with as many samples of the split as are scored: its first, which are a fair sample of it."""
        count = self.scored_samples(experiment, split)
        if count == experiment.dataset.size(split):
            return experiment
        first = experiment.dataset.first(**{split: count})
        return replace(experiment, dataset=first)

    def words(self, experiment: Experiment, split: Split) -> tuple[str, ...]:
        """What is less than the experiment asks for; nothing where all of it is done."""
        calls, asked = self.timed_calls(experiment), experiment.measure.calls
        samples, there = self.scored_samples(experiment, split), experiment.dataset.size(split)
        found = [f"{calls} of {asked} timed calls"] if calls < asked else []
        found += [f"{samples} of {there} samples"] if samples < there else []
        if experiment.service is not None and not self.curve and not self.loaded:
            found.append("the batch curve of the search")
        return tuple(found)


FULL = Effort()
EFFORTS = (
    FULL,
    Effort(calls=0.5, load=0.5),
    Effort(calls=0.25, load=0.25, curve=False),
    Effort(calls=0.1, load=0.25, samples=0.25, curve=False),
)
"""From all to the least that still says something; samples go last, since what a confirmation is for is accuracy."""


def effort_of_search(experiment: Experiment, known: Mapping[str, Evaluation]) -> Effort:
    """The effort of a sweep's search, by what its evaluations say was cut; full before the first is complete."""
    measured = next((e.cut for e in known.values() if e.status == "complete"), ())
    return next((effort for effort in EFFORTS if effort.words(experiment, "validation") == measured), FULL)
