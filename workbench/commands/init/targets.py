"""For which targets files are written, which of them share an experiment, and whether each can run what was staged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.evaluation.data_check import check_data
from workbench.inputs.dataset import Dataset
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics import MeaningScorer, scorer_of
from workbench.search.refusals import candidate_errors, cannot_run, slow_operators
from workbench.space.space import Assignment, Forbidden, build
from workbench.targets import REFERENCE, described, open_target
from workbench.targets.base import OperatorIssue
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.installed_targets import target_names
from workbench.values.model import Model

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Groups of targets, each an experiment of its own: modelled times are never compared with measured ones, and
    those of a device not with those of this host.

    Attributes:
        named: each by its name, not by 'all'.
        notes: which were left out, and why.
    """

    groups: tuple[tuple[str, ...], ...]
    named: bool = True
    notes: tuple[str, ...] = ()


def choose_targets(written: Sequence[str]) -> Chosen:
    """The targets of `--target a,b` or `--target a --target b`; all by 'all', without those that cannot work."""
    names = [name.strip() for text in written for name in text.split(",") if name.strip()] or [REFERENCE]
    notes: list[str] = []
    named = ALL not in names
    if ALL in names:
        if len(names) > 1:
            raise ConfigError("'all' leaves nothing to add.", key="--target")
        names = [name for name in _reference_first(target_names()) if not _of_language(name) and _works(name, notes)]
    for name in names:
        if name not in target_names():
            raise ConfigError(f"{name!r} is not a target.", key="--target", hint=nearest(name, (*target_names(), ALL)))
        if _of_language(name):
            raise ConfigError(
                f"{name!r} takes folders of language models, no ONNX files.",
                key="--target",
                hint=f"Start from search_spaces/{name}.yaml; docs/llm.md says how.",
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"{', '.join(names)}: one stands twice.", key="--target")
    host = tuple(name for name in names if described(name).on_host)
    devices = tuple((name,) for name in names if not described(name).on_host)
    return Chosen(groups=(*([host] if host else []), *devices), named=named, notes=tuple(notes))


def _of_language(name: str) -> bool:
    """Whether a target is known to be for language models; a broken one is told of elsewhere."""
    with contextlib.suppress(ConfigError, ToolchainError):
        return described(name).language
    return False


def present(name: str) -> str:
    """Empty where a target can be used on this machine, else what is missing."""
    try:
        open_target(name).toolchain()
    except ToolchainError as error:
        return str(error)
    return ""


def _works(name: str, notes: list[str]) -> bool:
    """A device that is not here may be rehearsed, or be on another machine; a library that is missing is left out."""
    missing = present(name) if described(name).on_host else ""
    if missing:
        notes.append(f"{name} is left out: {missing}")
    return not missing


def _reference_first(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != REFERENCE, name))


_JUDGED = {
    "classification": "share of samples in the right class",
    "ner": "entity-level F1",
}
_SHOWN = 5


def judged_by(dataset: Dataset, model: Model) -> str:
    """What accuracy is, for people."""
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
            notes += [note for target in rest for note in _slow(experiment, _float(experiment, target))]
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


def _slow(experiment: Experiment, candidate: Candidate | None) -> list[str]:
    with contextlib.suppress(ToolchainError):  # it cannot be asked here
        return slow_operators(open_target(candidate.target), experiment.model, candidate) if candidate else []
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
