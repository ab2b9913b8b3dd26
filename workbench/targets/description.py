"""TargetDescription: everything a target says of itself, behind its one entry point.

Light to import: the module that holds one loads neither a vendor's library nor onnx. Whatever needs them is a function
here, which imports inside its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.targets.binding import UNBOUND, Binding
from workbench.targets.deployment import DeploymentFacts, on_the_host
from workbench.targets.space_start import SpaceStart, static_int8
from workbench.values.device_use import Reader
from workbench.values.finding import Finding
from workbench.values.installed_targets import InstalledTarget

if TYPE_CHECKING:
    from onnx import ModelProto

    from workbench.targets.base import OperatorIssue, Target
    from workbench.targets.calibrator import Calibrator
    from workbench.targets.inside import LooksInside
    from workbench.targets.profiler import Profiler
    from workbench.values.artifact import Artifact, Toolchain
    from workbench.values.candidate import Candidate


def nothing_to_know(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    """About files that need no word."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One device of this machine that can be given to a process alone.

    Attributes:
        name: the machine's own, which stays the same whatever a process sees; letters, digits and hyphens.
        environment: variables of a process that sees this one alone.
    """

    name: str
    environment: Mapping[str, str]


def no_cards() -> tuple[Card, ...]:
    """Of targets that compute on the host."""
    return ()


@dataclass(frozen=True, kw_only=True)
class TargetDescription(InstalledTarget):
    """One target. What has a default may be left out.

    Attributes:
        make: gives the target; imports the vendor's library, and raises ToolchainError where it is missing.
        findings: facts about this machine for `workbench doctor`, by the environment's variables; None where the
            versions that its toolchain names say enough.
        cards: the devices that this process may use, each to be measured on alone; raises ToolchainError where they
            cannot be told.
        read_device: gives a reader of one card, by its number and the environment of the process that computes on it;
            None where the host computes, or nothing can be read.
        cluster_resource: what a cluster's scheduler counts its cards by; '' where it computes on the host.
        devices_hint: what to look at where fewer devices are visible than wanted, as the end of a sentence.
        packages: distributions that serving needs beside the workbench's own and the target's.
        unneeded: distribution → why it is left out, although a package above declares it.
        deployment: what production must give a service.
        binding: which facts of a machine an artifact is bound to.
        required_files: names of files without which an artifact is of no use.
        loading: what whoever loads the files without the workbench must know, as items of a list.
        calibrator: the vendor's own quantizer, by the environment's variables; None where there is none.
        profiler: the vendor's tools that look into a device; None where there are none.
        compiled_as: what `workbench compare` has before its compiled files, such as om in `om:FOLDER`; '' where nobody
            can look into them.
        inside: looks into them operator by operator while they run; None where that cannot be done.
        inspect: what is known to go wrong with a model, errors first; None for what `Target.check` says of INT8.
        engine: what its lowered files are executed by on this machine, as `workbench compare` calls it; '' for the
            target's own name.
        recognizes: whether a file can only be one that this target lowered.
        space_start: what a first search space for a model, an ONNX file, begins with.
        float32_mode: the value of precision.mode with which nothing is rounded further than float32.
        engine_files: files that tell an engine of others how to serve an artifact: (folder of its files, name of the
            service) → name → text; None where `workbench serve` does.
        language: it is for language models: its models are folders, and it is a `targets.language.LanguageTarget`.
        first_space: of such a target, the text of a first search space.
        int8_pays: whether INT8 was found faster than float on machines like this one; where not, it is tried last.
        per_channel_types: operators whose weights may have a scale for each channel; None for all that can be INT8.
    """

    make: Callable[[], Target]
    findings: Callable[[Mapping[str, str]], Iterator[Finding]] | None = None
    cards: Callable[[], tuple[Card, ...]] = no_cards
    read_device: Callable[[int, Mapping[str, str]], Reader] | None = None
    cluster_resource: str = ""
    devices_hint: str = ""
    packages: tuple[str, ...] = ()
    unneeded: Mapping[str, str] = field(default_factory=dict)
    deployment: Callable[[Toolchain], DeploymentFacts] = on_the_host
    binding: Binding = UNBOUND
    required_files: tuple[str, ...] = ()
    loading: Callable[[Artifact, Candidate], Sequence[str]] = nothing_to_know
    calibrator: Callable[[Mapping[str, str]], Calibrator] | None = None
    profiler: Callable[[], Profiler] | None = None
    compiled_as: str = ""
    inside: Callable[[], LooksInside] | None = None
    inspect: Callable[[ModelProto], tuple[OperatorIssue, ...]] | None = None
    engine: str = ""
    recognizes: Callable[[ModelProto], bool] | None = None
    space_start: Callable[[Path], SpaceStart] = static_int8
    float32_mode: str = "fp32"
    engine_files: Callable[[Path, str], Mapping[str, str]] | None = None
    language: bool = False
    first_space: str = ""
    per_channel_types: tuple[str, ...] | None = None
    int8_pays: Callable[[], bool] = lambda: True
