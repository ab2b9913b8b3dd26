"""What a sweep knows so far, in a few lines: its front, the best of it, and how well each figure is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from workbench.inputs.experiment import Experiment
from workbench.search.front import front_of, is_feasible
from workbench.values.candidate import Candidate
from workbench.values.evidence import level_of
from workbench.values.metrics import metrics
from workbench.values.objectives import METRICS
from workbench.values.results import Evaluation

MOST_ROWS = 6
_MARK = "> "


def front_so_far(experiment: Experiment, known: Mapping[str, Evaluation]) -> list[Evaluation]:
    """By what the search has measured and predicted; the best in the first objective first."""
    front = front_of(experiment, known)
    return front[::-1] if METRICS[experiment.objectives[0].metric].direction == "maximize" else front


def standing_lines(
    experiment: Experiment,
    front: Sequence[Evaluation],
    known: Mapping[str, Evaluation],
    confirmed: Mapping[str, Evaluation],
    words: Callable[[Candidate], str],
) -> list[str]:
    """A heading and a row for each member of the front, then the float baseline where it is none of them.

    Args:
        confirmed: of members that were measured on held-out data; their figures are those.
        words: what a candidate is called.
    """
    baseline = known.get(experiment.baseline.id)
    shown = list(front[:MOST_ROWS])
    if baseline is not None and baseline.status == "complete" and baseline not in front:
        shown.append(baseline)
    names = [objective.metric for objective in experiment.objectives]
    rows = [[_figure(confirmed.get(e.candidate.id, e), name) for name in names] for e in shown]
    widths = [max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(names)]
    head = "  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))
    lines = [f"{'':14}{head}".rstrip()]
    for number, (evaluation, row) in enumerate(zip(shown, rows, strict=True)):
        mark = _MARK if number == 0 and evaluation in front else " " * len(_MARK)
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"{mark}{evaluation.candidate.short_id[:10]}  {cells}  {words(evaluation.candidate)}")
    if len(front) > MOST_ROWS:
        lines.append(f"  and {len(front) - MOST_ROWS} more on the front")
    return lines


def gain_words(experiment: Experiment, best: Evaluation, baseline: Evaluation | None) -> str:
    """'621/s (predicted), 7.2 times the float baseline'; empty where the baseline is the best."""
    name = experiment.objectives[0].metric
    said = f"{name} {_figure(best, name)}"
    if baseline is None or baseline.candidate.id == best.candidate.id:
        return said
    before, now = metrics(baseline).get(name), metrics(best)[name]
    if baseline.split == best.split and not is_feasible(experiment, baseline):
        return f"{said}; the float baseline breaks a limit, so no factor is given"
    return said if not before else f"{said}, {now / before:.2f} times the float baseline's"


def _figure(evaluation: Evaluation, metric: str) -> str:
    """'621/s predicted': the value, its unit, and the level of its evidence."""
    value = metrics(evaluation).get(metric)
    if value is None:
        return "none"
    number = f"{value:.4f}" if metric == "accuracy" else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    unit = METRICS[metric].unit
    spaced = unit if unit in ("", "/s", "x") else f" {unit}"
    return f"{number}{spaced} {level_of(evaluation, metric) or ''}".rstrip()
