"""Do the constraints of an experiment fit the unit and the direction of its primary metric?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics import scorer_of
from workbench.values.documents.yaml_reader import Section
from workbench.values.metrics import drop_metric
from workbench.values.model import Model
from workbench.values.objectives import Constraint, Objective


def check_primary_limits(
    top: Section,
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    dataset: Dataset,
    model: Model,
) -> None:
    """Refuse a drop in percentage points of a metric in decibels, and the like.

    Raises:
        ConfigError: names the constraint and what to write instead.
    """
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        primary, unit, higher = scorer.primary, scorer.unit, scorer.higher
    right = drop_metric(unit)
    wrong = {"accuracy_drop", "accuracy_drop_pp"} - {right}
    said = f"the primary metric {primary} is " + (f"in {unit}" if unit else "a share of 0..1")
    for key, names in (
        ("objectives", [o.metric for o in objectives]),
        ("constraints", [c.metric for c in constraints]),
    ):
        for name in names:
            section = top.section("constraints") if key == "constraints" else top
            place = name if key == "constraints" else key
            if name in wrong:
                amount = f"in {unit}" if unit else "in percentage points"
                raise section.error(place, f"{said}.", f"Write {right}, {amount}.")
            if name == "accuracy" and key == "constraints" and not higher:
                raise section.error(place, f"{primary} is better when it is less.", f"Limit {right} instead.")
