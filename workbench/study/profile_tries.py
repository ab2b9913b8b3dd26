"""What a profile speaks for trying, as candidates that can be evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.space.dimensions import TARGET
from workbench.space.space import Forbidden, SearchSpace, assignment_of, build, complete
from workbench.values.candidate import Candidate
from workbench.values.device_profile import Suggestion
from workbench.values.dimension import Scalar
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.system.files import write_json_atomically

_BATCHES = "compile.batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One suggestion, and the candidate that it makes of the profiled one.

    Attributes:
        candidate: None where no setting does it, or a rule excludes it (`refused`).
        missing: what the space would need to propose it by itself: parameter → choice; empty where it does.
        file: the candidate as JSON; None without one.
        command: that evaluates it.
    """

    suggestion: Suggestion
    candidate: Candidate | None
    missing: Mapping[str, Scalar]
    refused: str = ""
    file: Path | None = None
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            **encode(self.suggestion),
            "candidate": None if self.candidate is None else self.candidate.id,
            "in_space": self.candidate is not None and not self.missing,
            "missing_in_space": dict(self.missing),
            "refused": self.refused,
            "file": None if self.file is None else str(self.file),
            "command": self.command,
        }


def tries(
    suggestions: Sequence[Suggestion], candidate: Candidate, space: SearchSpace, experiment: Path, folder: Path
) -> tuple[Try, ...]:
    """A candidate for each suggestion, written below `folder`; of two that make the same one, the first."""
    found: list[Try] = []
    for suggestion in suggestions:
        one = _try_of(suggestion, candidate, space)
        if one.candidate is None:
            found.append(one)
        elif one.candidate.id != candidate.id and all(other.candidate != one.candidate for other in found):
            file = folder / f"try-{one.candidate.short_id}.json"
            folder.mkdir(parents=True, exist_ok=True)
            write_json_atomically(file, one.candidate.to_json())
            command = f"workbench evaluate {experiment} --candidate {file}"
            found.append(replace(one, file=file, command=command))
    return tuple(found)


def _try_of(suggestion: Suggestion, candidate: Candidate, space: SearchSpace) -> Try:
    if not suggestion.changes:
        return Try(suggestion=suggestion, candidate=None, missing={})
    names = {parameter.name for parameter in space.parameters}
    own = assignment_of(space, candidate)
    if own is None:
        own = _settings(candidate, suggestion.changes, names)
    wanted = {**own, **suggestion.changes}
    settings = complete(space, wanted)
    left = [name for name in wanted if name not in settings and (name not in names or name in suggestion.changes)]
    try:
        made = build(_with_its_cfg(space, candidate), {**settings, **{name: wanted[name] for name in left}})
    except (Forbidden, ConfigError, ValueError) as error:
        return Try(suggestion=suggestion, candidate=None, missing={}, refused=str(error))
    if assignment_of(space, made) is not None:
        return Try(suggestion=suggestion, candidate=made, missing={})
    missing = {name: value for name, value in suggestion.changes.items() if not _offered(space, settings, name, value)}
    if not missing:  # then the profiled candidate itself is what the space does not propose
        missing = {name: value for name, value in own.items() if not _offered(space, settings, name, value)}
    return Try(suggestion=suggestion, candidate=made, missing=missing)


def _with_its_cfg(space: SearchSpace, candidate: Candidate) -> SearchSpace:
    """A configuration that the candidate follows and the space does not have, under the name that settings give it."""
    text = candidate.quantization.cfg
    if text is None:
        return space
    name = str(candidate.quantization.settings()["cfg"])
    return replace(space, configurations={**space.configurations, name: text})


def _settings(candidate: Candidate, changes: Mapping[str, Scalar], names: AbstractSet[str]) -> dict[str, Scalar]:
    """Of a candidate that the space does not propose: all that it says, but batches that the change makes void."""
    found = {name: value for name, value in candidate.switches().items() if name != TARGET or TARGET in names}
    batch = changes.get("serving.batch")
    if _BATCHES not in names and batch is not None and str(batch) not in str(found.get(_BATCHES, "")).split():
        found.pop(_BATCHES, None)
    return found


def _offered(space: SearchSpace, settings: Mapping[str, Scalar], name: str, value: Scalar) -> bool:
    choices = {parameter.name: parameter.choices for parameter in space.parameters}
    return name in settings and value in choices.get(name, ())
