"""What outputs mean, declared as a manifest would."""

from pathlib import Path

import numpy as np

from workbench.inputs.dataset import Batch
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.values.interface import Meaning, OutputUse

Option = str | int | float | bool


def use(name: str, meaning: Meaning, limits: dict[str, float] | None = None, **options: Option) -> OutputUse:
    written = tuple(sorted((limits or {}).items()))
    return OutputUse(name=name, meaning=meaning, options=tuple(sorted(options.items())), limits=written)


def scorer(*uses: OutputUse) -> MeaningScorer:
    return MeaningScorer(uses=uses, file=Path("m.yaml"), declared=True)


def batch_of(rows: int, valid: object = None, first: int = 0, **more: object) -> Batch:
    """Of so many samples without feeds."""
    mask = None if valid is None else np.asarray(valid, dtype=np.bool_)
    given = {"feeds": {}, "targets": None, "indices": np.arange(first, first + rows), "valid": mask} | more
    return Batch(**given)
