"""What the commands open: store, bench, the last sweep, one of its candidates, its summary.

Imports stand inside the functions: `workbench --help` and commands that need none of it must not wait for it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.commands.console import err
from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.evaluation.bench import Bench
    from workbench.evaluation.journal import Journal
    from workbench.evaluation.journal_entries import Damage
    from workbench.evaluation.store import Store
    from workbench.inputs.experiment import Experiment
    from workbench.quantization.statistics import Statistics
    from workbench.report import Summary
    from workbench.search.plan import Plan
    from workbench.values.candidate import Candidate


@contextlib.contextmanager
def open_store(workspace: Path) -> Iterator[Store]:
    from workbench.evaluation.store import Store

    store = Store(workspace / ".workbench" / "store")
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def opened(experiment: Path, workspace: Path | None, *, scratch: bool = False) -> Iterator[tuple[Experiment, Bench]]:
    """The experiment and a bench for it.

    Args:
        scratch: let evaluations write into a folder that goes away, not into the journal of the sweep.
    """
    from workbench.evaluation.bench import open_bench
    from workbench.evaluation.journal import Journal, current_journal
    from workbench.inputs.experiment import read_experiment

    question = read_experiment(experiment, workspace)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(question.workspace))
        folder = stack.enter_context(scratch_folder("journal"))
        journal = None if scratch else current_journal(question.workspace, question.name)
        yield question, open_bench(question, journal or Journal(root=folder), store, lambda candidate, stage: None)


def journal_of(question: Experiment) -> Journal:
    """The last sweep of an experiment.

    Raises:
        ConfigError: there was none yet.
        ToolchainError: every evaluation of it is damaged.
    """
    from workbench.evaluation.journal import current_journal

    journal = current_journal(question.workspace, question.name)
    if journal is None or not journal.evaluations():
        if journal is not None and (damage := journal.damage()):
            raise damaged(f"No sound evaluation is left in {journal.root}", damage, question)
        raise ConfigError("has not been swept yet.", file=question.path, hint=f"Run: workbench sweep {question.path}")
    return journal


def damaged(fact: str, damage: Sequence[Damage], question: Experiment) -> ToolchainError:
    """The error that names damaged files and what to do about them."""
    files = "".join(f"\n  {one.words()}" for one in damage)
    return ToolchainError(f"{fact}:{files}\nTo mend it, run the sweep again: workbench sweep {question.path}")


def tell_damage(journal: Journal | None) -> None:
    """One warning on stderr for each damaged file of a sweep, for commands that show no report."""
    if journal is None:
        return
    for damage in journal.damage():
        words = f"warning: damaged sweep {journal.root}: {damage.words()}."
        err.print(words, style="yellow", highlight=False, soft_wrap=True, markup=False)


def tell_damage_of_last(workspace: Path, name: str) -> None:
    """The same of an experiment's last sweep, for commands that need none."""
    from workbench.evaluation.journal import current_journal

    with contextlib.suppress(ConfigError):  # one of another revision says nothing of damage
        tell_damage(current_journal(workspace, name))


def find_candidate(text: str, journal: Journal) -> Candidate:
    """The candidate an id (or its first digits) or a JSON file means.

    Raises:
        ConfigError: none, or more than one.
        ToolchainError: its evaluation is damaged.
    """
    if text.endswith(".json"):
        return _candidate_file(text)
    found = [e.candidate for i, e in journal.evaluations().items() if text and i.startswith(text.lower())]
    if not found:
        lost = [d for d in journal.damage() if text and d.candidate_id and d.candidate_id.startswith(text.lower())]
        if lost:
            raise ToolchainError(f"{lost[0].words()}. Run the sweep again, then this command.")
    if len(found) != 1:
        count = "no candidate" if not found else f"{len(found)} candidates"
        raise ConfigError(
            f"{count} of the last sweep begin with {text!r}.", key="--candidate", hint="See `workbench show`."
        )
    return found[0]


def _candidate_file(text: str) -> Candidate:
    from workbench.values.candidate import candidate_from_json
    from workbench.values.documents.json_reader import read_json

    data = read_json(Path(text))
    if not isinstance(data, dict):
        raise ConfigError("not a candidate file: it holds no object.", file=text)
    try:
        return candidate_from_json(data)
    except DecodeError as error:
        raise ConfigError(f"not a candidate file: {error}.", file=text) from error
    except ConfigError as error:
        raise ConfigError(error.rule, file=text, key=error.key, hint=error.hint) from error


def named_candidate(text: str, question: Experiment) -> Candidate:
    """'baseline', a candidate JSON file, or an id of the last sweep; only the last needs a sweep.

    Raises:
        ConfigError: nothing, or more than one candidate, is called so.
    """
    if text == "baseline":
        return question.baseline
    if text.endswith(".json"):
        return _candidate_file(text)
    return find_candidate(text, journal_of(question))


def summary_of(question: Experiment, journal: Journal) -> Summary:
    from workbench.inputs.metrics import load_outcomes, per_sample
    from workbench.report import summarize

    def outcomes(candidate_id: str) -> Any:
        path = journal.outcomes(candidate_id, "validation")
        return per_sample(load_outcomes(path)) if path.exists() else None

    return summarize(
        experiment_name=question.name,
        experiment_file=str(question.path),
        objectives=question.objectives,
        constraints=question.constraints,
        evaluations=list(journal.evaluations().values()),
        confirmations=journal.evaluations("holdout"),
        outcomes=outcomes,
        baseline_id=question.baseline.id,
        damage=journal.damage(),
    )


def plan_lines(made: Plan) -> list[str]:
    from workbench.commands.progress import minutes

    bound = "" if made.space.exact else "at most "
    cached = ", ".join(f"{count} {kind}" for kind, count in made.store_entries.items()) or "nothing yet"
    return [
        f"space:      {bound}{made.space.candidates} candidates, {made.space.compiles} distinct compiles",
        f"this sweep: {made.trials} candidates, {made.done} done, {made.todo} to do (at most {made.compiles} compiles)",
        f"time:       at most {minutes(made.total_s)} ({made.candidate_s:.1f} s a candidate, from {made.basis}; "
        f"one float call takes {made.call_ms:.2f} ms), and the confirmation of the front",
        f"disk:       at most {made.disk_bytes / 1e9:.2f} GB of {made.free_bytes / 1e9:.1f} GB free",
        f"store:      {cached}",
    ]


def next_lines(experiment: Path, workspace: Path | None, summary: Summary) -> list[str]:
    """The commands that follow a sweep: see its pages, ship what it recommends (nothing, where it recommends none)."""
    given = [str(experiment)] if workspace is None else [str(experiment), "--workspace", str(workspace)]
    found = [f"to open them:    {shlex.join(['workbench', 'ui', *given])}"]
    if summary.recommended is not None:
        emulated = ["--allow-emulated"] if summary.emulated else []
        found.append(f"to ship it:      {shlex.join(['workbench', 'export', *given, '--to', 'bundle', *emulated])}")
    return found


def calibration_line(statistics: Statistics) -> str:
    """Whether more calibration samples would change anything, in one sentence (`Statistics.stability`)."""
    unstable = statistics.unstable()
    if not unstable:
        return (
            f"calibration: {statistics.samples} samples are enough; two halves of them show the same ranges to within "
            f"{max(statistics.stability().values(), default=0.0):.0%}"
        )
    worst = unstable[0]
    return (
        f"calibration: {len(unstable)} of {len(statistics.tensors)} tensors have ranges that a few of the "
        f"{statistics.samples} samples decide (worst: {worst}, {statistics.stability()[worst]:.0%} apart between two "
        "halves). Raise calibration.samples, or prefer algorithms that clip."
    )
