"""What of CANN is installed: read from its files, nothing is started.

Layouts: 8.5 keeps `share/info/<package>/version.info`, older ones `<package>/version.info` (atc.md §7.1, pyacl.md
§6.5). A file has `Version=8.5.0.2.220` (a build) and `version_dir=8.5.0` (the release people speak of).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from workbench.values.errors import ToolchainError
from workbench.values.versions import version_key

CANN_WANTED = "8.5.0"
DRIVER_WANTED = "25.2.0"
"""Oldest driver that the workbench supports with CANN_WANTED."""

DRIVER_ROOT = Path("/usr/local/Ascend")
OPERATOR_KERNELS = "ascend910b"
"""Folder of the operator kernels of 910B1 to 910B4 below `opp/…/kernel`."""

_VARIABLES = frozenset(
    {
        # where programs and CANN lie: what is found there is in every key by its versions (`toolchain`)
        *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"),
        *("ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "TOOLCHAIN_HOME"),
        # how fast, in how many processes, with which kernels kept (atc.md §2.5)
        *("TE_PARALLEL_COMPILER", "MULTI_THREAD_COMPILE", "MAX_COMPILE_CORE_NUMBER", "OMP_NUM_THREADS"),
        *("ASCEND_CACHE_PATH", "ASCEND_MAX_OP_CACHE_SIZE"),
        # what is said, in which language, and where files lie meanwhile
        *("ASCEND_GLOBAL_LOG_LEVEL", "ASCEND_GLOBAL_EVENT_ENABLE", "ASCEND_MODULE_LOG_LEVEL", "TMPDIR", "LANG"),
        *("ASCEND_HOST_LOG_FILE_NUM", "DUMP_GE_GRAPH", "DUMP_GRAPH_LEVEL", "NPU_COLLECT_PATH", "LC_ALL", "LC_CTYPE"),
        *("AMCT_LOG_LEVEL", "AMCT_LOG_FILE_LEVEL", "TZ", "USER", "XDG_CACHE_HOME", "WORKBENCH_MAX_FILE_GIB"),
    }
)
_EMULATOR = "CANN_EMULATOR_"  # it says what it is in the versions

_PROBES = (
    "share/info/ge-compiler/version.info",
    "share/info/runtime/version.info",
    "compiler/version.info",
    "opp/version.info",
)
"""Below the root; the first hit is the version of CANN ([inferred] order, atc.md §7.1)."""

_KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"
_WITHOUT_OPS = {"config", "ops_oam"}
"""What lies in the kernel folder of a toolkit whose ops package is missing."""

REMEDY = (
    f"Install the CANN {CANN_WANTED} toolkit and the ops package of the 910b, then: source <CANN>/set_env.sh "
    '(to rehearse without them: eval "$(workbench emulator env)")'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A CANN root and what lies in it.

    Attributes:
        version: `Version=` of the first version file, such as 8.5.0.2.220; empty where no file gives one.
        release: `version_dir=` where that names a version, `version` otherwise.
        packages: package → version, of every version.info found.
        atc: the compiler on PATH, or else the one of this root; None where there is none.
        kernels: chips whose operator kernels (the ops package) are installed, such as 'ascend910b'.
        emulator: what the version file says of being emulated; None for the vendor's own.
    """

    home: Path
    version: str
    release: str
    packages: Mapping[str, str]
    atc: Path | None
    kernels: tuple[str, ...]
    emulator: str | None


def find_installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """The CANN that ASCEND_HOME_PATH names.

    Raises:
        ToolchainError: none, or half of one; says what is missing and how to get it.
    """
    why, remedy = no_cann(environment)
    if why:
        raise ToolchainError(f"No CANN: {why}. {remedy}")
    found = read_installation(Path(environment["ASCEND_HOME_PATH"]), environment)
    if not found.version:
        raise ToolchainError(
            f"{found.home} is no whole CANN: none of {', '.join(_PROBES)} gives a version. Install the toolkit again, "
            "or source the set_env.sh of another one."
        )
    return found


def no_cann(environment: Mapping[str, str]) -> tuple[str, str]:
    """(why no CANN is switched on, what to do); both empty where one is."""
    named = environment.get("ASCEND_HOME_PATH", "")
    if named and Path(named).is_dir():
        return "", ""
    why = f"ASCEND_HOME_PATH names {named}, which is no folder" if named else "ASCEND_HOME_PATH is not set"
    # at the vendor's default places, whether or not set_env.sh was sourced (atc.md §7.1)
    roots = [DRIVER_ROOT / "cann", DRIVER_ROOT / "ascend-toolkit/latest"]
    if home := environment.get("HOME"):
        roots += [Path(home) / "Ascend/cann", Path(home) / "Ascend/ascend-toolkit/latest"]
    for root in roots:
        if (root / "set_env.sh").is_file() or (root.parent / "set_env.sh").is_file():
            return f"{why}, but CANN is at {root}", f"Run: source {root}/set_env.sh"
    return why, REMEDY


def read_installation(home: Path, environment: Mapping[str, str] = os.environ) -> Installation:
    """What lies below a root; what is not there is empty in the result. Raises nothing."""
    probes = [read_version_info(home / name) for name in _PROBES]
    first = next((info for info in probes if info.get("version")), {})
    files = [*home.glob("*/version.info"), *home.glob("share/info/*/version.info")]
    packages = {file.parent.name: read_version_info(file).get("version", "") for file in files}
    version, folder = first.get("version", ""), first.get("version_dir", "")
    return Installation(
        home=home,
        version=version,
        release=folder if re.match(r"\d+\.\d", folder) else version,
        packages={name: packages[name] for name in sorted(packages) if packages[name]},
        atc=tool_of("atc", environment, home),
        kernels=_kernels(home),
        emulator=next((info["emulator"] for info in probes if info.get("emulator")), None),
    )


def compiler_of_another(installation: Installation, environment: Mapping[str, str] = os.environ) -> Installation | None:
    """The CANN that the compiler belongs to, where that is not this one; links are followed to find it."""
    if installation.atc is None:
        return None
    atc, home = ((path.absolute(), path.resolve()) for path in (installation.atc, installation.home))
    if any(place.is_relative_to(root) for place, root in product(atc, home)):
        return None
    others = [read_installation(place.parents[1], environment) for place in atc]
    return next((other for other in others if other.version), others[0])


def driver_files(root: Path = Path("/")) -> tuple[Path, str, str]:
    """The driver's folder, which its install record names or which is the usual one, and the versions of driver and
    firmware that its own files tell; '' where there is no file.

    Source: pyacl.md §6.5; [inferred] that `firmware/version.info` lies beside the driver's.
    """
    recorded = read_version_info(root / "etc/ascend_install.info").get("driver_install_path_param", "")
    place = Path(recorded) if recorded else DRIVER_ROOT
    driver, firmware = (read_version_info(place / part / "version.info") for part in ("driver", "firmware"))
    return place, driver.get("version", ""), firmware.get("version", "")


def read_version_info(file: Path) -> dict[str, str]:
    """Lines `Key=value` of a vendor's file, keys in lower case; empty where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip().strip('"') for key, sign, value in reversed(list(pairs)) if sign}


def tool_of(
    name: str, environment: Mapping[str, str], *homes: Path, below: tuple[str, ...] = ("bin", "compiler/bin")
) -> Path | None:
    """The program on PATH, or else below the first of these roots that has it."""
    on_path = shutil.which(name, path=environment.get("PATH", os.defpath))
    if on_path:
        return Path(on_path)
    places = (home / place / name for home in homes for place in below)
    return next((place for place in places if place.is_file() and os.access(place, os.X_OK)), None)


def _kernels(home: Path) -> tuple[str, ...]:
    try:
        chips = [place for place in (home / _KERNELS).iterdir() if place.is_dir() and place.name != "config"]
        return tuple(sorted(c.name for c in chips if any(k.name not in _WITHOUT_OPS for k in c.iterdir())))
    except OSError:
        return ()


def compiler_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment reaches a compiler or AMCT: nothing that changes a result and that no key holds.

    TUNE_BANK_PATH and ASCEND_CUSTOM_OPP_PATH do; a space names an operator bank, and keys hold what is in it.
    """
    return {n: value for n, value in environment.items() if n in _VARIABLES or n.startswith(_EMULATOR)}


def same_release(version: str, wanted: str) -> bool:
    """True when both are builds of one release: 8.5.0.2.220 and 8.5.0, not 8.5.0.alpha002, not 8.5.1."""
    (numbers, stage, _), (other, other_stage, _) = version_key(version), version_key(wanted)
    padded, other_padded = ((*n, 0, 0, 0)[:3] for n in (numbers, other))
    return bool(numbers) and padded == other_padded and stage == other_stage


def cann_problem(release: str) -> str:
    """Why this CANN is not the one the workbench is written for; empty when it is."""
    return "" if same_release(release, CANN_WANTED) else f"CANN {release or 'of unknown version'}, wanted {CANN_WANTED}"


def driver_problem(version: str) -> str:
    """Why this NPU driver does not do; empty when it does."""
    if not version_key(version)[0]:
        return f"driver of unknown version{f' ({version})' if version else ''}, wanted {DRIVER_WANTED} or newer"
    if version_key(version) < version_key(DRIVER_WANTED):
        return f"driver {version}, wanted {DRIVER_WANTED} or newer"
    return ""
