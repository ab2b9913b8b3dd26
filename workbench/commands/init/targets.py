"""For which targets files are written, which of them share an experiment, and whether each can run what was staged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.evaluation.data_check import check_data
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.refusals import candidate_errors, cannot_run
from workbench.space.space import Forbidden, build
from workbench.targets import REFERENCE, described, graph_targets, open_target
from workbench.targets.base import OperatorIssue
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.installed_targets import target_names

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

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(target for group in self.groups for target in group)


def choose_targets(written: Sequence[str]) -> Chosen:
    """The targets of `--target a,b` or `--target a --target b`; all by 'all', without those that cannot work."""
    names = [name.strip() for text in written for name in text.split(",") if name.strip()] or [REFERENCE]
    notes: list[str] = []
    named = ALL not in names
    if not named:
        if len(names) > 1:
            raise ConfigError("'all' leaves nothing to add.", key="--target")
        names = []
        for target in graph_targets():
            # a device that is not here may be rehearsed, or be on another machine; a library that is missing may not
            missing = present(target.name) if target.on_host else ""
            notes += [f"{target.name} is left out: {missing}"] if missing else []
            names += [] if missing else [target.name]
    for name in names:
        if name not in target_names():
            raise ConfigError(f"{name!r} is not a target.", key="--target", hint=nearest(name, (*target_names(), ALL)))
        if described(name).language:
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


def present(name: str) -> str:
    """Empty where a target can be used on this machine, else what is missing."""
    try:
        open_target(name).toolchain()
    except ToolchainError as error:
        return str(error)
    return ""


def read_back(chosen: Chosen, experiments: Sequence[Path], *, one_size: bool) -> Chosen:
    """Groups whose every target runs the float model, with a note on those that do not.

    Args:
        one_size: all samples of an input have the same size.
    """
    kept: list[tuple[str, ...]] = []
    notes: list[str] = []
    for group, path in zip(chosen.groups, experiments, strict=True):
        experiment = read_experiment(path)
        check_data(experiment)
        refused = {target: _refusal(target, issues, experiment, one_size) for target, issues in _issues(experiment)}
        if refused and chosen.named:
            raise next(iter(refused.values()))
        notes += [f"{target} is left out: {refusal}" for target, refusal in refused.items()]
        if rest := tuple(target for target in group if target not in refused):
            kept.append(rest)
    if not kept:
        raise ConfigError(f"no target can run it. {' '.join(notes)}", key="--target")
    return Chosen(groups=tuple(kept), named=chosen.named, notes=(*chosen.notes, *notes))


def _issues(experiment: Experiment) -> Iterator[tuple[str, list[OperatorIssue]]]:
    """Of each target that can be asked here and knows its float candidate to go wrong."""
    asked = set()
    for preset in experiment.space.presets:
        with contextlib.suppress(Forbidden, ToolchainError):
            candidate = build(experiment.space, preset.assignment)
            if candidate.quantization.scheme == "none" and candidate.target not in asked:
                asked.add(candidate.target)
                if issues := candidate_errors(open_target(candidate.target), experiment.model, candidate):
                    yield candidate.target, issues


@contextlib.contextmanager
def about_the_users_files(staging: Path) -> Iterator[None]:
    """An error speaks of the user's files, never of the staged ones."""
    try:
        yield
    except ConfigError as error:
        inside = error.file is None or Path(error.file).resolve().is_relative_to(staging.resolve())
        file, line = (None, None) if inside else (error.file, error.line)
        raise ConfigError(error.rule, file=file, line=line, key=error.key, hint=error.hint) from error


def _refusal(target: str, issues: Sequence[OperatorIssue], experiment: Experiment, one_size: bool) -> ConfigError:
    more = ""
    if any("free axes" in issue.problem for issue in issues):
        first = "" if one_size else "Samples differ in size: resize or pad them to one and write them again; then "
        more = f"\n  {first}`workbench init … --target {target}` alone gives every axis the size it has in the data."
    return cannot_run(target, issues, experiment.model, key="--target", more=more)
