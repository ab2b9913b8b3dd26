"""TargetDescription: everything a target says of itself, behind its one entry point.

Light to import: the module that holds one loads neither a vendor's library nor onnx. Whatever needs them is a function
here, which imports inside its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.targets.binding import UNBOUND, Binding
from workbench.targets.deployment import DeploymentFacts, on_the_host
from workbench.values.finding import Finding
from workbench.values.installed_targets import InstalledTarget

if TYPE_CHECKING:
    from workbench.targets.base import Target
    from workbench.values.candidate import Candidate
    from workbench.values.results import Artifact, Toolchain


def nothing_to_know(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    """About files that need no word."""
    return ()


@dataclass(frozen=True, kw_only=True)
class TargetDescription(InstalledTarget):
    """One target. What has a default may be left out.

    Attributes:
        make: gives the target; imports the vendor's library, and raises ToolchainError where it is missing.
        findings: facts about this machine for `workbench doctor`, by the environment's variables; None where the
            versions that its toolchain names say enough.
        devices_hint: what to look at where fewer devices are visible than wanted, as the end of a sentence.
        packages: distributions that serving needs beside the workbench's own and the target's.
        unneeded: distribution → why it is left out, although a package above declares it.
        deployment: what production must give a service.
        binding: which facts of a machine an artifact is bound to.
        required_files: names of files without which an artifact is of no use.
        loading: what whoever loads the files without the workbench must know, as items of a list.
    """

    make: Callable[[], Target]
    findings: Callable[[Mapping[str, str]], Iterator[Finding]] | None = None
    devices_hint: str = ""
    packages: tuple[str, ...] = ()
    unneeded: Mapping[str, str] = field(default_factory=dict)
    deployment: Callable[[Toolchain], DeploymentFacts] = on_the_host
    binding: Binding = UNBOUND
    required_files: tuple[str, ...] = ()
    loading: Callable[[Artifact, Candidate], Sequence[str]] = nothing_to_know
