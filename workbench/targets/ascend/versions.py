"""Which versions fit together: CANN 8.5.0 on driver 25.2.0 or newer, and how the vendor's versions are ordered."""

from __future__ import annotations

from workbench.values.versions import version_key

CANN_WANTED = "8.5.0"
DRIVER_WANTED = "25.2.0"
"""Oldest driver that the workbench supports with CANN_WANTED."""


def same_release(version: str, wanted: str) -> bool:
    """True when both are builds of one release: 8.5.0.2.220 and 8.5.0, not 8.5.0.alpha002, not 8.5.1."""
    (numbers, stage, _), (other, other_stage, _) = version_key(version), version_key(wanted)
    padded, other_padded = ((*n, 0, 0, 0)[:3] for n in (numbers, other))
    return bool(numbers) and padded == other_padded and stage == other_stage


def cann_problem(release: str) -> str:
    """Why this CANN is not the one the workbench is written for; empty when it is."""
    if same_release(release, CANN_WANTED):
        return ""
    if not release:
        return f"CANN of unknown version, wanted {CANN_WANTED}"
    return f"CANN {release}, wanted {CANN_WANTED}"


def driver_problem(version: str) -> str:
    """Why this NPU driver does not do; empty when it does."""
    if not version_key(version)[0]:
        return f"driver of unknown version{f' ({version})' if version else ''}, wanted {DRIVER_WANTED} or newer"
    if version_key(version) < version_key(DRIVER_WANTED):
        return f"driver {version}, wanted {DRIVER_WANTED} or newer"
    return ""
