"""What every installed target finds on this machine, and which of them cannot even be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.targets import described, target_names
from workbench.targets.description import TargetDescription
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.finding import Finding


def target_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Those that compute on the host first. A target that cannot be loaded is a warning and disturbs no other.

    Args:
        environment: what targets read to find their vendor's software.
    """
    found: list[TargetDescription] = []
    broken: list[Finding] = []
    for name in target_names():
        try:
            found.append(described(name))
        except (ConfigError, ToolchainError) as error:
            remedy = "Repair or uninstall it; the other targets are not concerned."
            broken.append(Finding(group=_group(name), name="loading", status="warn", value=str(error), remedy=remedy))
    for target in sorted(found, key=lambda target: not target.on_host):
        yield from _plain_findings(target) if target.findings is None else target.findings(environment)
    yield from broken


def _plain_findings(target: TargetDescription) -> Iterator[Finding]:
    """Of a target that says nothing of its own: whether its toolchain is there, and its versions."""
    try:
        toolchain = target.make().toolchain()
    except ToolchainError as error:
        remedy = "Optional: without it this target cannot be swept; the others are not concerned."
        yield Finding(group=_group(target.name), name="usable", status="warn", value=f"no: {error}", remedy=remedy)
        return
    versions = ", ".join(f"{name} {version}" for name, version in toolchain.components.items())
    yield Finding(group=_group(target.name), name="usable", status="ok", value=f"yes: {versions}")


def _group(name: str) -> str:
    return f"target {name}"
