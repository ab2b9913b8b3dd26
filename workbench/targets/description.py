"""TargetDescription: everything a target says of itself, behind its one entry point.

Light to import: the module that holds one loads neither a vendor's library nor onnx. Whatever needs them is a function
here, which imports inside its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.values.finding import Finding
from workbench.values.installed_targets import InstalledTarget

if TYPE_CHECKING:
    from workbench.targets.base import Target


def no_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Of a target about which there is nothing to say beyond what its toolchain says."""
    yield from ()


@dataclass(frozen=True, kw_only=True)
class TargetDescription(InstalledTarget):
    """One target. What has a default may be left out.

    Attributes:
        title: what people read: 'Ascend 910B3'.
        make: gives the target; imports the vendor's library, and raises ToolchainError where it is missing.
        on_host: it computes on the host's processors, so that there is one device; False for devices beside it.
        findings: facts about this machine for `workbench doctor`, by the environment's variables.
    """

    title: str
    make: Callable[[], Target]
    on_host: bool = True
    findings: Callable[[Mapping[str, str]], Iterator[Finding]] = no_findings
