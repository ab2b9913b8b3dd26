"""Which targets are installed, and what a candidate must know of its own.

A target is a package with one entry point in the group `workbench.targets`: its name, and the object that describes it.

    [project.entry-points."workbench.targets"]
    acme = "acme_int8.description:TARGET"

Found through the metadata of installed distributions, ours like everybody's; nothing here names one. What stands behind
an entry point is imported when it is first asked for. A target that cannot be is named with its distribution, and
disturbs nobody who does not use it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, distributions

from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import Dimension
from workbench.values.errors import ConfigError, ToolchainError, nearest

GROUP = "workbench.targets"


@dataclass(frozen=True, kw_only=True)
class InstalledTarget:
    """What is known of a target without its vendor's library.

    Attributes:
        name: as in the entry point, in space files and in candidates.
        title: what people read: 'ONNX Runtime'.
        on_host: it computes on the host's processors, so that there is one device; False for devices beside it.
        settings: the type of its candidates' `compile` part.
        dimensions: dotted name → what a space may say about it, of every setting that not all targets have: its
            compiler's, and of the others 'precision.mode' (fp32 alone without), 'quantization.calibrator',
            'serving.streams', 'serving.intra_op_threads' and 'serving.sequence_bins'. What is missing here of these, no
            candidate of the target may have.
        named: its candidates' words begin with the title, which tells them from those of other targets.
    """

    name: str
    title: str
    on_host: bool = True
    settings: type[CompileSettings]
    dimensions: Mapping[str, Dimension] = field(default_factory=dict)
    named: bool = True


def target_names() -> tuple[str, ...]:
    """Names of the installed targets, sorted; also of those that cannot be loaded."""
    return tuple(sorted(_entries()))


@functools.cache
def installed_target(name: str) -> InstalledTarget:
    """What stands behind a target's entry point.

    Raises:
        ConfigError: there is no such target, or two distributions bring one of that name.
        ToolchainError: its package cannot be imported, or gives something else than a target.
    """
    found = _entries().get(name, ())
    if not found:
        # none at all, not even ours: the metadata are older than the sources
        none = "No target is installed at all. Run `pip install -e .` in the workbench's folder again."
        raise ConfigError(f"{name!r} is not a target.", key="target", hint=nearest(name, target_names()) or none)
    if len(found) > 1:
        raise ConfigError(
            f"{name!r} is the target of {' and of '.join(_distribution(entry) for entry in found)}.",
            key="target",
            hint="Uninstall one of them.",
        )
    entry = found[0]
    try:
        value = entry.load()
    except Exception as error:  # whatever a package of somebody else's raises while it is imported
        raise ToolchainError(
            f"Target {name!r} of {_distribution(entry)} cannot be loaded: {type(error).__name__}: {error}. Repair or "
            "uninstall that distribution."
        ) from error
    if not isinstance(value, InstalledTarget) or value.name != name:
        what = f"the target {value.name!r}" if isinstance(value, InstalledTarget) else f"a {type(value).__name__}"
        raise ToolchainError(
            f"Target {name!r} of {_distribution(entry)} cannot be loaded: {entry.value} is {what}, not the "
            f"TargetDescription of {name!r}. Repair or uninstall that distribution."
        )
    return value


def distribution_of(name: str) -> str:
    """Name and version of the distribution that brings a target, for people; of several the first."""
    return _distribution(_entries()[name][0])


def distributions_of(name: str) -> tuple[str, ...]:
    """Names, as pip knows them, of the distributions that bring a target."""
    return tuple(entry.dist.name for entry in _entries()[name] if entry.dist is not None)


@functools.cache
def _entries() -> Mapping[str, tuple[EntryPoint, ...]]:
    """By name; the same entry of the same distribution counts once.

    Every folder's metadata are read: what an older build left in a checkout would hide the installed ones otherwise.
    """
    found: dict[str, tuple[EntryPoint, ...]] = {}
    seen: set[tuple[str, str, str]] = set()
    for distribution in distributions():
        for entry in distribution.entry_points.select(group=GROUP):
            key = (distribution.name, entry.name, entry.value)
            if key not in seen:
                seen.add(key)
                found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
