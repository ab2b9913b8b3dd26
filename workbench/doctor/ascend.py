"""What of Ascend is here: CANN, compiler, runtime, driver, devices. Nothing fails; the other target works without."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from workbench import __version__
from workbench.doctor.finding import Finding
from workbench.targets import TARGETS

ASCEND = "ascend910b3"
DRIVER_VERSION_FILE = Path("/usr/local/Ascend/driver/version.info")

_CANN_WANTED, _DRIVER_WANTED = "8.5.0", "25.2.0"
_CANN_VERSION_FILES = (
    "share/info/ge-compiler/version.info",
    "share/info/runtime/version.info",
    "compiler/version.info",
    "opp/version.info",
)
"""Below ASCEND_HOME_PATH, the 8.5 layout first (runtime/scripts/package/common/sh/common_func_v2.inc of CANN 8.5.0)."""

_NPU_SMI_TIMEOUT_S = 20
_GROUP = f"target {ASCEND}"


def module_at(name: str) -> str | None:
    """Where Python finds a module, which is not imported; None where it does not."""
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.origin or name


def ascend_findings(
    environment: Mapping[str, str],
    *,
    driver_file: Path = DRIVER_VERSION_FILE,
    place_of: Callable[[str], str | None] = module_at,
    targets: Iterable[str] = TARGETS,
) -> Iterator[Finding]:
    """One finding per part that a sweep on Ascend 910B3 needs.

    Args:
        environment: ASCEND_HOME_PATH and PATH are read.
        driver_file: version.info of the NPU driver.
        place_of: where Python finds a module.
        targets: names of the targets that this workbench has.
    """
    if ASCEND not in targets:
        yield Finding(
            group=_GROUP,
            name="workbench",
            status="warn",
            value=f"workbench {__version__} has no Ascend target",
            remedy=f"`workbench inspect --target {ASCEND}` says what ATC would stumble over; the findings below say "
            "whether the machine is ready for one.",
        )
    yield _toolkit(environment.get("ASCEND_HOME_PATH", ""))
    path = environment.get("PATH", os.defpath)
    yield _part(
        "compiler", shutil.which("atc", path=path), "no atc", "It comes with the toolkit; compiling needs no NPU."
    )
    yield _part(
        "runtime", place_of("acl"), "no Python module acl", "set_env.sh puts it on PYTHONPATH; it needs the driver."
    )
    yield _part(
        "AMCT",
        place_of("amct_onnx"),
        "no Python module amct_onnx",
        "Optional. Of CANN 8.5 it wants onnx 1.14.0 with onnxruntime 1.16.0: give it a virtual environment of its own.",
    )
    yield _driver(version_in(driver_file))
    smi = shutil.which("npu-smi", path=path)
    devices, trouble = _devices(smi) if smi else (None, "no npu-smi")
    yield _part(
        "device",
        devices,
        trouble,
        "Install the driver and firmware of the Atlas A2; in a container, mount /dev/davinci* and the driver's folder.",
    )


def version_in(file: Path) -> str:
    """What the line `Version=…` of a vendor's version.info says; empty without one."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^\s*version\s*=\s*(\S+)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return found.group(1) if found else ""


def _toolkit(home: str) -> Finding:
    remedy = f"Install the CANN {_CANN_WANTED} toolkit and the ops package of the 910b, then: source <CANN>/set_env.sh"
    if not home or not Path(home).is_dir():
        missing = f"ASCEND_HOME_PATH names {home}, which is no folder" if home else "ASCEND_HOME_PATH is not set"
        return _part("toolkit", None, missing, remedy)
    version = next((v for name in _CANN_VERSION_FILES if (v := version_in(Path(home) / name))), "")
    if _numbers(version) == _numbers(_CANN_WANTED):
        return _part("toolkit", f"CANN {version} at {home}", "", remedy)
    found = f"CANN {version or 'of unknown version'} at {home}, wanted {_CANN_WANTED}"
    return _part("toolkit", None, found, remedy)


def _driver(version: str) -> Finding:
    remedy = f"Install the NPU driver {_DRIVER_WANTED} or newer; only compiling needs none."
    if not version:
        return _part("driver", None, "no version found", remedy)
    enough = _numbers(version) >= _numbers(_DRIVER_WANTED)
    return _part("driver", version if enough else None, f"{version}, wanted {_DRIVER_WANTED} or newer", remedy)


def _numbers(version: str) -> tuple[int, ...]:
    """(25, 3) of '25.3.rc1' and of '25.3.0': the leading numbers, by which Ascend's versions are ordered."""
    leading = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _devices(smi: str) -> tuple[str | None, str]:
    """(chips by name, '') or (None, why there are none), from `npu-smi info`.

    Its text differs between drivers, so it is read leniently: a device is a row `| 0     910B3 | OK | …`.
    """
    try:
        done = subprocess.run(
            [smi, "info"], capture_output=True, text=True, errors="replace", timeout=_NPU_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"npu-smi does not answer: {error}"
    cells = [line.split("|")[1].split() for line in done.stdout.splitlines() if line.count("|") >= 3]
    chips = [words[1] for words in cells if len(words) == 2 and words[0].isdigit() and not words[1].isdigit()]
    if done.returncode != 0 or not chips:
        return None, f"npu-smi lists no device (exit code {done.returncode})"
    return ", ".join(f"{chips.count(name)} × {name}" for name in dict.fromkeys(chips)), ""


def _part(name: str, value: str | None, missing: str, remedy: str) -> Finding:
    if value is not None:
        return Finding(group=_GROUP, name=name, status="ok", value=value)
    return Finding(group=_GROUP, name=name, status="warn", value=missing, remedy=remedy)
