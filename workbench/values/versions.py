"""How versions are ordered, those of vendors included, and how what is missing is installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_BEFORE_RELEASE = ("t", "b", "alpha", "beta", "rc")
RELEASED = len(_BEFORE_RELEASE)


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """(leading numbers, stage, number of the stage): 25.3.rc1 < 25.3.0 = 25.3 < 25.3.1.

    Build numbers count (8.5.0.2.220 > 8.5.0). What has no leading number is older than everything.
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)[.\-_]?(?:(rc|alpha|beta|t|b)(\d*))?", version.strip().lower())
    if found is None:
        return (), 0, 0
    numbers = [int(part) for part in found.group(1).split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    if found.group(2) is None:
        return tuple(numbers), RELEASED, 0
    return tuple(numbers), _BEFORE_RELEASE.index(found.group(2)), int(found.group(3) or 0)


def install_command(extra: str = "") -> str:
    """What installs this workbench, with an extra, into the Python that runs: from its checkout where it has one."""
    checkout, wanted = Path(__file__).parents[2], f"[{extra}]" if extra else ""
    source = f"-e '{checkout}{wanted}'" if (checkout / "pyproject.toml").exists() else f"'int8-workbench{wanted}'"
    return f"{sys.executable} -m pip install {source}"
