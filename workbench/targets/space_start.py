"""SpaceStart: what of a target the files of `workbench init` begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.values.dimension import Scalar

Choices = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStart:
    """What a service is told and asked.

    Attributes:
        today: (max_batch_size, batch_timeout_ms, workers) that the target's users are known to run; None where nobody
            knows, and the first choices are what 'untuned' means.
        concurrency: clients that wait for their answers; None for twice the cores of this machine.
        p99_ms: None where only a call of the model tells: it is measured on this machine.
        host: lines of YAML for the host in front of a device, to be filled in where there is none.
    """

    max_batch_size: tuple[int, ...] = (1, 4, 8, 16)
    batch_timeout_ms: tuple[float, ...] = (0, 2, 5, 10)
    workers: tuple[int, ...] = (1, 2)
    concurrency: int | None = None
    p99_ms: float | None = None
    host: tuple[str, ...] = ()
    today: tuple[int, float, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceStart:
    """A target's part of a first search space and of its experiment.

    Attributes:
        schemes: of INT8, those that it has.
        algorithms, granularity: of static INT8, the default first.
        weight_algorithms: None where its default is as good as any.
        parameters: name → choices, the default first; of precision and of the compiler.
        fusions: those that change the model, each to be a switch; without the prefix of their dimensions.
        int8_fusions: more of them, that only a quantized model has.
        forbid: choices that no INT8 scheme goes together with, each with its reason.
        notes: comments for the space, a line each.
        calibration_samples: how many are enough.
        scored: (validation, holdout) samples that are enough where every pass is slow; None for all.
        rehearsal: the command that takes the place of a device that is not there.
    """

    schemes: tuple[str, ...] = ("static",)
    algorithms: tuple[str, ...] = ("mse", "minmax", "percentile", "kl")
    granularity: tuple[str, ...] = ("channel", "tensor")
    weight_algorithms: tuple[str, ...] | None = None
    parameters: Choices = field(default_factory=dict)
    fusions: tuple[str, ...] = ()
    int8_fusions: tuple[str, ...] = ()
    forbid: tuple[tuple[Choices, str], ...] = ()
    notes: tuple[str, ...] = ()
    service: ServiceStart = ServiceStart()
    calibration_samples: int = 128
    scored: tuple[int, int] | None = None
    rehearsal: str = ""


def static_int8(model: Path) -> SpaceStart:
    """For a target about whose compiler a first space says nothing."""
    return SpaceStart()
