"""Staged files read as a sweep reads them, and every target asked whether it can run what stands in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.commands.init.targets import Chosen
from workbench.evaluation.data_check import check_data
from workbench.inputs.dataset import Dataset
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics import MeaningScorer, scorer_of
from workbench.search.refusals import candidate_errors, cannot_run
from workbench.space.space import Assignment, Forbidden, build
from workbench.targets import open_target
from workbench.targets.base import OperatorIssue
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.model import Model

_JUDGED = {
    "classification": "share of samples in the right class",
    "ner": "entity-level F1",
}
_SHOWN = 5


def judged_by(dataset: Dataset, model: Model) -> str:
    """What accuracy is, for people.

    Raises:
        ConfigError: nothing can be scored.
    """
    scorer = scorer_of(dataset, model)
    try:
        if dataset.metric is not None:
            return f"{scorer.primary}, the metric of the dataset's manifest"
        labelled = isinstance(scorer, MeaningScorer) and scorer.has_labels
        truth = "the data's labels" if labelled else "the float model's answers"
        return _JUDGED.get(dataset.task, f"{scorer.primary}, compared with {truth}")
    finally:
        scorer.close()


def read_back(
    chosen: Chosen, experiments: Sequence[Path], staging: Path, *, one_size: bool
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """(groups whose every target runs the float model, what else is to be known).

    Args:
        one_size: all samples of an input have the same size.

    Raises:
        ConfigError: the files do not fit the data or the model, or no target, or one that was named, can run it.
    """
    kept: list[tuple[str, ...]] = []
    notes: list[str] = []
    for group, path in zip(chosen.groups, experiments, strict=True):
        experiment = _read(path, staging)
        refused = [(target, issues) for target in group if (issues := _errors(experiment, _float(experiment, target)))]
        if refused and chosen.named:
            target, issues = refused[0]
            raise _refusal(target, issues, experiment.model, one_size)
        if rest := tuple(target for target in group if target not in dict(refused)):
            kept.append(rest)
            notes += _doubtful(experiment, rest)
        notes += [f"{t} is left out: {_refusal(t, issues, experiment.model, one_size)}" for t, issues in refused]
    if not kept:
        raise ConfigError(f"no target can run it. {' '.join(notes)}", key="--target")
    return tuple(kept), tuple(notes)


def _read(path: Path, staging: Path) -> Experiment:
    with about_the_users_files(staging):
        experiment = read_experiment(path)
        check_data(experiment)
    return experiment


@contextlib.contextmanager
def about_the_users_files(staging: Path) -> Iterator[None]:
    """An error speaks of the user's files, never of the staged ones."""
    try:
        yield
    except ConfigError as error:
        inside = error.file is None or Path(error.file).resolve().is_relative_to(staging.resolve())
        raise ConfigError(
            error.rule,
            file=None if inside else error.file,
            line=None if inside else error.line,
            key=error.key,
            hint=error.hint,
        ) from error


def _float(experiment: Experiment, target: str) -> Candidate | None:
    """The first float preset of a target."""
    built = (_built(experiment, preset.assignment) for preset in experiment.space.presets)
    return next((c for c in built if c is not None and c.target == target and c.quantization.scheme == "none"), None)


def _built(experiment: Experiment, assignment: Assignment) -> Candidate | None:
    try:
        return build(experiment.space, assignment)
    except Forbidden:
        return None


def _errors(experiment: Experiment, candidate: Candidate | None) -> list[OperatorIssue]:
    """What its target knows to go wrong; nothing where the target cannot be asked here."""
    if candidate is None:
        return []
    try:
        return candidate_errors(open_target(candidate.target), experiment.model, candidate)
    except ToolchainError:
        return []


def _doubtful(experiment: Experiment, group: Sequence[str]) -> list[str]:
    """Presets that a target will refuse: the sweep goes on without them, so a word is enough."""
    found = []
    for preset in experiment.space.presets:
        candidate = _built(experiment, preset.assignment)
        if candidate is not None and candidate.target in group and candidate.quantization.scheme != "none":
            found += [f"{preset.name} will be refused: {i.problem}. {i.remedy}" for i in _errors(experiment, candidate)]
    return list(dict.fromkeys(found))[:_SHOWN]


def _refusal(target: str, issues: Sequence[OperatorIssue], model: Model, one_size: bool) -> ConfigError:
    more = ""
    if any("free axes" in issue.problem for issue in issues):
        first = "" if one_size else "Samples differ in size: resize or pad them to one and write them again; then "
        more = f"\n  {first}`workbench init … --target {target}` alone gives every axis the size it has in the data."
    return cannot_run(target, issues, model, key="--target", more=more)
