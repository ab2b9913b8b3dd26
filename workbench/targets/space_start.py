"""SpaceStart: what of a target a search space begins with, when `workbench init` writes one for a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.values.dimension import Scalar

Choices = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceStart:
    """A target's part of a first search space.

    Attributes:
        schemes: of INT8, those that it has.
        parameters: name → choices, the default first; of precision and of the compiler.
        fusions: those that change the model, each to be a switch; without the prefix of their dimensions.
        forbid: choices that no INT8 scheme goes together with, each with its reason.
    """

    schemes: tuple[str, ...] = ("static",)
    parameters: Choices = field(default_factory=dict)
    fusions: tuple[str, ...] = ()
    forbid: tuple[tuple[Choices, str], ...] = ()


def static_int8(model: Path) -> SpaceStart:
    """For a target about whose compiler a first space says nothing."""
    return SpaceStart()
