"""What is opened for a question: bench, the last sweep, one of its candidates, its summary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.run_notes import read_last_run, read_neighbours
from workbench.evaluation.store import open_store
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs import experiment as experiments
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.outcomes import load_outcomes, per_sample
from workbench.report import Summary, summarize
from workbench.report.advice import advise
from workbench.report.alike import OutcomesOf
from workbench.search.first_look import first_int8
from workbench.search.front import is_feasible
from workbench.space.space import Forbidden, assignment_of, build
from workbench.tracking import Tracker, open_tracker
from workbench.values.candidate import Candidate
from workbench.values.documents.json_reader import read_document
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.measurement import Split
from workbench.values.system.scratch import scratch_folder


def read_experiment(experiment: Experiment | Path | str, workspace: Path | str | None = None) -> Experiment:
    """An experiment file and everything it refers to, read and checked; an experiment is given back.

    Args:
        workspace: folder of `.workbench/` and `mlruns/`; beside `experiments/` when None.

    Raises:
        ConfigError: in this file, the dataset manifest, the search space, the data or the model.
    """
    folder = None if workspace is None else Path(workspace)
    if not isinstance(experiment, Experiment):
        return experiments.read_experiment(Path(experiment), folder)
    if folder is not None and folder.resolve() != experiment.workspace:
        raise ConfigError(
            f"{experiment.name} was read for the workspace {experiment.workspace}, not {folder}.",
            key="workspace",
            hint="Name it where the experiment is read.",
        )
    return experiment


@contextlib.contextmanager
def opened(
    experiment: Experiment | Path | str,
    workspace: Path | str | None = None,
    *,
    scratch: bool = False,
    report: Callable[[Candidate, str], None] = lambda candidate, stage: None,
) -> Iterator[tuple[Experiment, Bench]]:
    """The experiment and a bench for it.

    Args:
        scratch: let evaluations write into a folder that goes away, not into the journal of the sweep.
        report: told (candidate, stage) when a stage begins.
    """
    question = read_experiment(experiment, workspace)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(question.workspace))
        folder = stack.enter_context(scratch_folder("journal"))
        journal = None if scratch else current_journal(question.workspace, question.name)
        yield question, open_bench(question, journal or Journal(root=folder), store, report)


def journal_of(question: Experiment) -> Journal:
    """The last sweep of an experiment.

    Raises:
        ConfigError: there was none yet.
        ToolchainError: every evaluation of it is damaged.
    """
    journal = current_journal(question.workspace, question.name)
    if journal is None or not journal.evaluations():
        if journal is not None and (damage := journal.damage()):
            files = "".join(f"\n  {one.words()}" for one in damage)
            mend = f"To mend it, run the sweep again: workbench sweep {question.path}"
            raise ToolchainError(f"No sound evaluation is left in {journal.root}:{files}\n{mend}")
        rule = "has not been swept yet." if journal is None else "no candidate of its sweep is finished yet."
        more = "" if journal is None else " again, and give it more time (--timeout)"
        raise ConfigError(rule, file=question.path, hint=f"Run: workbench sweep {question.path}{more}")
    return journal


def tracked(question: Experiment, journal: Journal, *, later: bool = True) -> AbstractContextManager[Tracker]:
    """MLflow's view of a sweep, as `workbench.tracking.open_tracker` opens it."""
    return open_tracker(
        question.workspace,
        question.name,
        journal,
        is_feasible=lambda evaluation: is_feasible(question, evaluation),
        about=question.about,
        later=later,
    )


def recommended_of(question: Experiment, summary: Summary) -> Candidate:
    if summary.recommended is None:
        raise ConfigError(
            summary.why_none,
            file=question.path,
            hint="`workbench show` says more; name one with --candidate to take it all the same.",
        )
    found = summary.find(summary.recommended.candidate_id)
    assert found is not None, "the recommended candidate was evaluated"
    return found.candidate


def refuse_language_model(question: Experiment, what: str) -> None:
    """Raises ConfigError, with what tells instead, where an experiment is of a language model."""
    if question.model.is_language_model:
        raise ConfigError(
            f"is of a language model, for which no {what} is made: engines of others serve it, and no card was asked.",
            file=question.path,
            hint=f"workbench show {question.path} has quality, size, prefill, decode and cache; workbench evaluate-llm "
            "compares checkpoints, workbench load URL measures a running engine.",
        )


def find_candidate(text: str, journal: Journal) -> Candidate:
    """The candidate an id (or its first digits) or a JSON file means.

    Raises:
        ConfigError: none, or more than one.
        ToolchainError: its evaluation is damaged.
    """
    if text.endswith(".json"):
        return _candidate_file(text)
    digits = text.lower() or "none"
    found = [e.candidate for i, e in journal.evaluations().items() if i.startswith(digits)]
    if len(found) == 1:
        return found[0]
    for one in journal.damage():
        if not found and (one.candidate_id or "").startswith(digits):
            raise ToolchainError(f"{one.words()}. Run the sweep again, then this command.")
    rule = f"{f'{len(found)} candidates' if found else 'no candidate'} of the last sweep begin with {text!r}."
    raise ConfigError(rule, key="--candidate", hint="See `workbench show`.")


def _candidate_file(text: str) -> Candidate:
    try:
        return read_document(Candidate, Path(text), "candidate")
    except ConfigError as error:
        raise ConfigError(error.rule, file=text, key=error.key, hint=error.hint) from error


def named_candidate(text: str, question: Experiment) -> Candidate:
    """'baseline', a candidate JSON file, or an id of the last sweep; only the last needs a sweep."""
    if text == "baseline":
        return question.baseline
    if text.endswith(".json"):
        return _candidate_file(text)
    return find_candidate(text, journal_of(question))


def outcomes_of(journal: Journal) -> OutcomesOf:
    """What every sample came to, read where it is asked for."""

    def outcomes(candidate_id: str, split: Split) -> Any:
        path = journal.outcomes(candidate_id, split)
        return per_sample(load_outcomes(path)) if path.exists() else None

    return outcomes


def summary_of(question: Experiment, journal: Journal) -> Summary:
    """What a sweep found."""
    return summarize(
        experiment_name=question.name,
        experiment_file=str(question.path),
        objectives=question.objectives,
        constraints=question.constraints,
        evaluations=list(journal.evaluations().values()),
        confirmations=journal.evaluations("holdout"),
        outcomes=outcomes_of(journal),
        baseline_id=question.baseline.id,
        damage=journal.damage(),
        run=read_last_run(journal.root),
        neighbours=read_neighbours(journal.root),
        presets=_presets(question),
        offers_int8=bool(first_int8(question)),
    )


def advice_of(question: Experiment, summary: Summary, journal: Journal) -> list[str]:
    """What its measurements say of the search space; quick."""
    pairs = ((e.candidate.id, assignment_of(question.space, e.candidate)) for e in summary.evaluations)
    chosen = {identity: assignment for identity, assignment in pairs if assignment is not None}
    offered = {p.name: p.choices for p in question.space.parameters if len(p.choices) > 1}
    return advise(summary, outcomes_of(journal), chosen, offered)


def _presets(question: Experiment) -> dict[str, str]:
    """Candidate id → name, of the possible presets of its space."""
    found = {}
    for preset in question.space.presets:
        with contextlib.suppress(Forbidden):
            found[build(question.space, preset.assignment).id] = preset.name
    return found
