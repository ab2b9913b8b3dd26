"""Two language models compared block by block, a float model's folder or a checkpoint each; and which groups of linears
of one hurt most when they alone are quantized.

The rows are those of `workbench compare`: what every block adds to the residual stream, the stream behind it, and the
logits as the output; what the logits mean is said beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.evaluation.bench import Bench
from workbench.evaluation.checkpoint import ranking_of
from workbench.inputs.experiment import Experiment
from workbench.study.compared import Comparison, Judgement
from workbench.study.comparison import compared_row
from workbench.study.differences import Differences
from workbench.study.limits import INT8, Limits
from workbench.targets import descriptions, open_target
from workbench.targets.language import LanguageTarget, Tokens, language_target
from workbench.values.errors import ConfigError

SAMPLES, TOKENS = 8, 256
"""How many texts are taken where nobody says, and how many tokens of each."""
_LOGITS = "logits"
_ROWS = 64


def language_target_name() -> str:
    """The target that executes language models.

    Raises:
        ConfigError: none is installed.
    """
    found = next((target.name for target in descriptions() if target.language), None)
    if found is None:
        raise ConfigError("no target for language models is installed.", hint="Install the extra: int8-workbench[llm].")
    return found


def comparing_target(name: str | None = None) -> LanguageTarget:
    """The target of that name, or the one for language models.

    Raises:
        ConfigError: there is none.
        ToolchainError: its packages are missing.
    """
    return language_target(open_target(name or language_target_name()))


def compare_language(
    a: Path,
    b: Path,
    windows: Sequence[Tokens],
    *,
    target: LanguageTarget,
    names: tuple[str, str],
    data: str,
    limits: Limits | None = None,
) -> Comparison:
    """Run both over the same windows and compare them.

    Args:
        windows: ids that both are given.
        names: of the two, for people.
        limits: None for those of INT8 against float.

    Raises:
        ConfigError: a folder is wrong, or they are models of different sizes.
        MeasureError: one cannot be executed.
    """
    chosen = limits or INT8
    sums: dict[str, Differences] = {}
    kinds: dict[str, str] = {}
    meant = _Meaning()
    for name, kind, ours, theirs in target.compared(a, b, windows):
        kinds[name] = kind
        sums.setdefault(name, Differences()).add(ours, theirs)
        if name == _LOGITS:
            meant.add(ours[0], theirs[0])
    stream, drafts = 0.0, []
    for name, total in sums.items():
        error = total.relative_error()
        drafts.append((name, total, max(error - stream, 0.0)))
        stream = error if kinds[name] == "block" else stream
    largest = max(added for _, _, added in drafts)
    return Comparison(
        a=names[0],
        b=names[1],
        data=data,
        batches=len(windows),
        limits=chosen,
        rows=tuple(
            compared_row(
                name, (name, kinds[name]), total, chosen, added=added, largest=largest, is_output=name == _LOGITS
            )
            for name, total, added in drafts
        ),
        only_in_a=0,
        meaning=meant.judgements(),
    )


class _Meaning:
    """What logits say: the likeliest token, and how far the distributions lie apart."""

    def __init__(self) -> None:
        self._tokens = self._agreed = 0
        self._divergence = 0.0

    def add(self, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> None:
        """Logits [tokens, vocabulary] of one window."""
        for start in range(0, len(a), _ROWS):
            ours, theirs = a[start : start + _ROWS].astype(np.float64), b[start : start + _ROWS].astype(np.float64)
            self._agreed += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
            p, q = _logarithms(ours), _logarithms(theirs)
            self._divergence += float((np.exp(p) * (p - q)).sum())
        self._tokens += len(a)

    def judgements(self) -> tuple[Judgement, ...]:
        agreed = self._agreed / self._tokens
        return (
            Judgement(metric="kl", a=0.0, b=self._divergence / self._tokens),
            Judgement(metric="top1_agreement", a=1.0, b=agreed),
        )


def _logarithms(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    wide = logits - logits.max(-1, keepdims=True)
    found: npt.NDArray[np.float64] = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return found


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
