"""How outputs are scored, said before any work."""

from __future__ import annotations

from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.scorer import scorer_of
from workbench.values.model import Model


def scoring_words(dataset: Dataset, model: Model) -> tuple[str, ...]:
    """A sentence for the primary metric, one for each output, and one for the limits beside the experiment's.

    Nothing where labels decide: that needs no words.

    Raises:
        ConfigError: as `scorer_of`.
    """
    if dataset.metric is not None or dataset.task != "tensors":
        return ()
    scorer = scorer_of(dataset, model)
    assert isinstance(scorer, MeaningScorer)  # of tensors without a metric of the user's own
    spec = scorer.specs[0]
    unit = f", in {spec.unit}" if spec.unit else ""
    better = "" if spec.higher else ", less is better"
    found = [f"accuracy is {spec.name}{unit}{better}: {spec.about}"]
    found += [f"output {use.name!r} is taken as {use.meaning}: {use.reason}" for use in scorer.uses if use.reason]
    limits = ", ".join(map(str, scorer.limits()))
    return (*found, *([f"every candidate must keep {limits}"] if limits else []))
