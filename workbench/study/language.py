"""Which groups of linears of a language model hurt most when they alone are quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import ranking_of
from workbench.inputs.experiment import Experiment
from workbench.targets.language import language_target

MOST_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroup:
    """Attributes:
    name: such as 'model.layers.3.down'.
    error: mean over tokens of ‖Δh‖² / ‖h‖² of its block's output, measured on the calibration texts.
    share: of the sum of all groups' errors.
    """

    name: str
    error: float
    share: float


def ranked_groups(experiment: Experiment, bench: Bench) -> tuple[RankedGroup, ...]:
    """Every group of every block, the worst first; measured once, then from the store.

    Raises:
        ConfigError: a weight is NaN or infinite.
    """
    target = language_target(bench.target(experiment.baseline))
    ranking = ranking_of(experiment, bench, target)
    total = sum(ranking.values()) or 1.0
    return tuple(RankedGroup(name=name, error=error, share=error / total) for name, error in ranking.items())


def ranking_lines(groups: Sequence[RankedGroup]) -> list[str]:
    """The worst groups as a table, then each kind's part."""
    width = max(len(group.name) for group in groups)
    lines = [f"{'':>4}  {'group':<{width}}  {'error':>9}  {'share':>6}  {'so far':>6}"]
    so_far = 0.0
    for place, group in enumerate(groups[:MOST_ROWS], 1):
        so_far += group.share
        lines.append(f"{place:>4}  {group.name:<{width}}  {group.error:9.2e}  {group.share:6.1%}  {so_far:6.1%}")
    if len(groups) > MOST_ROWS:
        lines.append(f"      and {len(groups) - MOST_ROWS} more, {1 - so_far:.1%} together")
    kinds: dict[str, float] = {}
    for group in groups:
        kind = group.name.rpartition(".")[2]
        kinds[kind] = kinds.get(kind, 0.0) + group.share
    told = ", ".join(f"{kind} {share:.1%}" for kind, share in sorted(kinds.items(), key=lambda item: -item[1]))
    return [
        *lines,
        f"by kind: {told}",
        "error: how far a block's output moves when that group alone is static W8A8, squared, as a share of the",
        "output, mean over tokens; measured on the calibration texts. `recipe.float_down: N` leaves the first N of",
        "down float, `recipe.float_groups: N` the first N of the others.",
    ]
