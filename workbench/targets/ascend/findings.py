"""What of Ascend is here: CANN, compiler, runtime, driver, devices. Nothing fails; the other targets work without."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from workbench.targets.ascend.amct.installation import VARIABLE as AMCT_PYTHON
from workbench.targets.ascend.amct.installation import find_amct
from workbench.targets.ascend.device_findings import Machine, device_findings
from workbench.targets.ascend.installation import (
    OPERATOR_KERNELS,
    Installation,
    compiler_of_another,
    dormant_installations,
    read_installation,
)
from workbench.targets.ascend.program import run_program
from workbench.targets.ascend.settings import ASCEND
from workbench.targets.ascend.versions import CANN_WANTED, cann_problem, same_release
from workbench.values.errors import ToolchainError
from workbench.values.finding import Finding, module_at

_GROUP = f"target {ASCEND}"
_IMPORT_TIMEOUT_S = 60.0
_ASK_ACL = "import acl; print(getattr(acl, '__file__', None) or 'built in'); print(acl.get_soc_name() or '')"


def ascend_findings(
    environment: Mapping[str, str],
    *,
    machine: Machine | None = None,
    place_of: Callable[[str], str | None] = module_at,
) -> Iterator[Finding]:
    """One finding per part that a sweep on Ascend 910B3 needs, and one for each thing found wrong with it.

    Args:
        environment: ASCEND_HOME_PATH, ASCEND_OPP_PATH, ASCEND_RT_VISIBLE_DEVICES and the search paths are read.
        machine: where device files and the driver's records lie.
        place_of: where Python finds a module.
    """
    home = environment.get("ASCEND_HOME_PATH", "")
    installation = read_installation(Path(home), environment) if home and Path(home).is_dir() else None
    if installation is not None and installation.emulator is not None:
        yield _warn(
            "emulated",
            f"CANN and its devices are emulated here: {installation.emulator}",
            "Every result says so, and `workbench export` refuses it without --allow-emulated. To measure, source the "
            "set_env.sh of a real CANN in a new shell.",
        )
    yield from _toolkit(installation, home, environment)
    yield _compiler(installation, environment)
    yield _runtime(environment, place_of)
    yield _amct(environment)
    emulated = installation is not None and installation.emulator is not None
    yield from device_findings(environment, machine or Machine(), group=_GROUP, emulated=emulated)


def _toolkit(installation: Installation | None, home: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    remedy = f"Install the CANN {CANN_WANTED} toolkit and the ops package of the 910b, then: source <CANN>/set_env.sh"
    if installation is None:
        missing = f"ASCEND_HOME_PATH names {home}, which is no folder" if home else "ASCEND_HOME_PATH is not set"
        dormant = dormant_installations(environment)
        if dormant:
            missing, remedy = f"{missing}, but CANN is at {dormant[0]}", f"source {dormant[0]}/set_env.sh"
        yield _warn("toolkit", missing, remedy)
        return
    problem = cann_problem(installation.release)
    yield (
        _warn("toolkit", f"{problem}; found at {installation.home}", remedy)
        if problem
        else _ok("toolkit", f"CANN {_with_build(installation)} at {installation.home}")
    )
    if not installation.version:
        yield _warn(
            "packages",
            f"half an installation: no version.info below {installation.home}",
            "The installer was interrupted, or the folder copied in part: install the toolkit again.",
        )
    mixed = {
        name: version
        for name, version in installation.packages.items()
        if name in ("compiler", "ge-compiler", "opp", "runtime") and not same_release(version, installation.version)
    }
    if mixed:
        others = ", ".join(f"{name} {version}" for name, version in mixed.items())
        yield _warn(
            "packages",
            f"parts of other releases: {others}",
            f"Install toolkit and ops package of one release, {CANN_WANTED}, into one folder.",
        )
    if OPERATOR_KERNELS in installation.kernels:
        yield _ok("operators", f"kernels of {', '.join(installation.kernels)}")
    else:
        have = f"only of {', '.join(installation.kernels)}" if installation.kernels else "none"
        yield _warn(
            "operators",
            f"kernels of {OPERATOR_KERNELS} are missing ({have}): ATC cannot compile for a 910B3",
            f"Install the ops package of the 910b for CANN {CANN_WANTED} (before 8.5: the kernels package).",
        )
    opp = environment.get("ASCEND_OPP_PATH", "")
    if not opp or not Path(opp).is_dir():
        yield _warn(
            "environment",
            f"ASCEND_OPP_PATH {f'names {opp}, which is no folder' if opp else 'is not set'}: half of set_env.sh",
            f"source {installation.home}/set_env.sh",
        )


def _with_build(installation: Installation) -> str:
    build = "" if installation.version == installation.release else f" (build {installation.version})"
    return f"{installation.release}{build}"


def _compiler(installation: Installation | None, environment: Mapping[str, str]) -> Finding:
    remedy = "It comes with the toolkit; compiling needs no NPU."
    atc = (installation or read_installation(Path(os.devnull), environment)).atc
    if atc is None:
        return _warn("compiler", "no atc", remedy)
    if installation is not None and compiler_of_another(installation, environment) is not None:
        remedy = f"source {installation.home}/set_env.sh again, in a new shell; where it has no bin/atc, install it."
        return _warn("compiler", f"{atc} is not of the CANN at {installation.home}", remedy)
    return _ok("compiler", str(atc))


def _runtime(environment: Mapping[str, str], place_of: Callable[[str], str | None]) -> Finding:
    """Whether `import acl` works, tried in a process of its own: a library that does not fit may end it."""
    if place_of("acl") is None:
        return _warn("runtime", "no Python module acl", "set_env.sh puts it on PYTHONPATH; it needs the driver.")
    try:
        ended = run_program(
            [sys.executable, "-P", "-c", _ASK_ACL], environment=environment, timeout_s=_IMPORT_TIMEOUT_S
        )
    except OSError as error:
        return _warn("runtime", f"import acl cannot be tried: {error}", "Look at the message.")
    if ended.code is None:
        return _warn(
            "runtime", f"import acl does not end within {_IMPORT_TIMEOUT_S:g} s", "Look at dmesg: a card may hang."
        )
    lines = ended.output.strip().splitlines()
    if ended.code != 0:
        why = lines[-1] if lines else f"exit code {ended.code}"
        remedy = f"source set_env.sh with the Python of the workbench, {sys.executable}."
        if "libascend_hal" in why:
            remedy = (
                "libascend_hal.so belongs to the NPU driver: install it, or add its lib64/driver and lib64/common to "
                "LD_LIBRARY_PATH; on a machine without NPU, <CANN>/devlib."
            )
        return _warn("runtime", f"import acl fails: {why}", remedy)
    place, soc = [*lines, "", ""][:2]
    return _ok("runtime", f"acl at {place}{f', chip {soc}' if soc else ''}")


def _amct(environment: Mapping[str, str]) -> Finding:
    try:
        found = find_amct(environment)
    except ToolchainError as error:
        return _warn("AMCT", " ".join(str(error).split()), "Calibrate without it: the workbench has its own engine.")
    if found is None:
        return _warn(
            "AMCT",
            "no Python module amct_onnx",
            "Optional: the workbench has its own engine. Of CANN 8.5 it wants onnx 1.14.0 with onnxruntime 1.16.0: "
            f"give it a virtual environment of its own and name that one's interpreter in {AMCT_PYTHON}.",
        )
    return _ok(
        "AMCT", f"amct_onnx {found.amct_onnx} with onnx {found.onnx}, onnxruntime {found.onnxruntime}, {found.python}"
    )


def _ok(name: str, value: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="ok", value=value)


def _warn(name: str, value: str, remedy: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="warn", value=value, remedy=remedy)
