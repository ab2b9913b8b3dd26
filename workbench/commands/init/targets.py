"""For which targets files are written, and which of them stand in one experiment."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.targets import REFERENCE, described, open_target
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


def choose_targets(written: Sequence[str]) -> Chosen:
    """The targets of `--target a,b` or `--target a --target b`; all of them by 'all', those that cannot work left out.

    Raises:
        ConfigError: no such target, or one stands twice.
    """
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
