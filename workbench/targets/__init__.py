"""The targets by name. Whatever differs by vendor stands here and nowhere above; nothing here knows an experiment, a
dataset or a sweep.

A target is a package with one entry point (`workbench.values.installed_targets`); ours stand here and are registered
like anybody's, in pyproject.toml.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from workbench.targets.description import TargetDescription
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.installed_targets import distribution_of, installed_target, target_names

if TYPE_CHECKING:
    from workbench.targets.base import Target

__all__ = ["REFERENCE", "described", "descriptions", "device_count", "graph_targets", "open_target", "target_names"]

REFERENCE = "onnxruntime"
"""The target whose engine runs plain ONNX, with Q/DQ pairs or without, where no other is asked for: the float model
that answers are compared with, and files that no target claims as its own."""


def described(name: str) -> TargetDescription:
    """What a target says of itself; no vendor's library is imported.

    Raises:
        ConfigError: no such target, or two distributions bring one of that name.
        ToolchainError: its package cannot be imported.
    """
    found = installed_target(name)
    if not isinstance(found, TargetDescription):
        raise ToolchainError(f"Target {name!r} of {distribution_of(name)} is no TargetDescription. Repair it.")
    return found


def descriptions() -> tuple[TargetDescription, ...]:
    """Of every target that can be loaded, those that compute on the host first, by name."""
    found = []
    for name in target_names():
        with contextlib.suppress(ConfigError, ToolchainError):  # `workbench doctor` names it
            found.append(described(name))
    return tuple(sorted(found, key=lambda target: not target.on_host))


def graph_targets() -> tuple[TargetDescription, ...]:
    """`descriptions` of those that take ONNX files: all but the targets for language models."""
    return tuple(target for target in descriptions() if not target.language)


def device_count(name: str) -> int:
    """How many devices this process could open sessions on, without importing a target that computes on the host.

    Raises:
        ConfigError: no such target.
        ToolchainError: the environment names devices wrongly.
    """
    found = described(name)
    return 1 if found.on_host else found.make().devices()


def open_target(name: str) -> Target:
    """The target of that name; its vendor's library is imported here, not before.

    Raises:
        ConfigError: no such target.
        ToolchainError: its package cannot be imported.
    """
    return described(name).make()
