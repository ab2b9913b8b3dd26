"""What a sweep advises on its space, and the narrowed space as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.api.opening import journal_of, outcomes_of, question_of, summary_of
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.report.advice import Advice, advise
from workbench.space.reader import read_space
from workbench.space.space import SearchSpace, assignment_of
from workbench.space.writer import Dropped, narrowed, space_yaml
from workbench.values.errors import ConfigError
from workbench.values.system.files import write_text_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A space without the choices that a sweep showed to be of no use.

    Attributes:
        file: None where there was nothing to take out, and nothing was written.
        kept: choices that stay although the advice speaks against them, since the space needs them.
    """

    file: Path | None
    advice: Advice
    dropped: tuple[Dropped, ...] = ()
    kept: tuple[Dropped, ...] = ()


def advice_of(question: Experiment, journal: Journal) -> Advice:
    """From what was measured; quick."""
    summary = summary_of(question, journal)
    pairs = ((e.candidate.id, assignment_of(question.space, e.candidate)) for e in summary.evaluations)
    chosen = {identity: assignment for identity, assignment in pairs if assignment is not None}
    return advise(
        summary,
        outcomes_of(journal),
        chosen,
        {p.name: p.choices for p in question.space.parameters if len(p.choices) > 1},
    )


def narrow_space(experiment: Experiment | Path | str, *, workspace: Path | str | None = None) -> Narrowed:
    """Write the narrowed space beside the one that was swept, as `NAME-narrowed.yaml`; overwrites nothing.

    Raises:
        ConfigError: there was no sweep yet, or the file is there.
    """
    question = question_of(experiment, workspace)
    served = question.space.served_bins
    space = question.space if served is None else served.file
    advice = advice_of(question, journal_of(question))
    wanted = [Dropped(name=name, choice=choice, why=why) for name, choice, why in advice.dropped()]
    file = space.path.with_name(f"{space.path.stem}-narrowed.yaml")
    if file.exists():
        raise ConfigError("exists already.", file=file, hint="Move it away, or use it in an experiment.")
    dropped = wanted
    if not _is_sound(space, dropped):  # some choice is needed for another: one parameter after the other
        dropped = []
        for name in dict.fromkeys(d.name for d in wanted):
            more = [*dropped, *(d for d in wanted if d.name == name)]
            dropped = more if _is_sound(space, more) else dropped
    kept = tuple(d for d in wanted if d not in dropped)
    if not dropped:
        return Narrowed(file=None, advice=advice, kept=kept)
    about = (
        f"{space.path.name} without what made no difference, or lost, in the sweep of {question.name}.",
        "Words for lengths stand as the numbers that they came to for its dataset.",
    )
    write_text_atomically(file, space_yaml(narrowed(space, dropped), about=about, dropped=dropped))
    return Narrowed(file=file, advice=advice, dropped=tuple(dropped), kept=kept)


def _is_sound(space: SearchSpace, dropped: Sequence[Dropped]) -> bool:
    """Whether the narrowed space, written and read again, is what was meant."""
    if not dropped:
        return True
    meant, beside = narrowed(space, dropped), space.path.parent  # its paths are relative
    with tempfile.NamedTemporaryFile("w", prefix=".", suffix=".tmp", dir=beside, encoding="utf-8") as draft:
        draft.write(space_yaml(meant, dropped=dropped))
        draft.flush()
        try:
            return read_space(Path(draft.name)).digest == meant.digest
        except ConfigError:
            return False
