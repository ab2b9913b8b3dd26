"""What outputs mean, declared as a manifest would."""

from pathlib import Path

from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.values.interface import Meaning, OutputUse

Option = str | int | float | bool


def use(name: str, meaning: Meaning, limits: dict[str, float] | None = None, **options: Option) -> OutputUse:
    written = tuple(sorted((limits or {}).items()))
    return OutputUse(name=name, meaning=meaning, options=tuple(sorted(options.items())), limits=written)


def scorer(*uses: OutputUse) -> MeaningScorer:
    return MeaningScorer(uses=uses, file=Path("m.yaml"), declared=True)
