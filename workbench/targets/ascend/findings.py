"""What of Ascend is here: CANN, compiler, runtime, driver, devices. Nothing fails; the other targets work without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workbench.targets.apart import run_apart
from workbench.targets.ascend.amct.process import VARIABLE as AMCT_PYTHON
from workbench.targets.ascend.amct.process import find_amct
from workbench.targets.ascend.description import DEVICES, DRIVER_MOUNTS
from workbench.targets.ascend.installation import (
    CANN_WANTED,
    DRIVER_WANTED,
    OPERATOR_KERNELS,
    REMEDY,
    Installation,
    cann_problem,
    compiler_of_another,
    driver_files,
    driver_problem,
    no_cann,
    read_installation,
    same_release,
    tool_of,
)
from workbench.targets.ascend.npu_smi import MIB, VARIABLE, Card, details, npu_smi_path, seen_cards, visible_devices
from workbench.targets.ascend.settings import ASCEND
from workbench.values.errors import ToolchainError
from workbench.values.finding import Finding
from workbench.values.versions import version_key

_GROUP = f"target {ASCEND}"
_IMPORT_TIMEOUT_S = 60.0
_ASK_ACL = "import acl; print(getattr(acl, '__file__', None) or 'built in'); print(acl.get_soc_name() or '')"


def ascend_findings(environment: Mapping[str, str], *, root: Path = Path("/")) -> Iterator[Finding]:
    """One finding per part that a sweep on Ascend 910B3 needs, and one for each thing found wrong with it.

    Args:
        environment: ASCEND_HOME_PATH, ASCEND_OPP_PATH, ASCEND_RT_VISIBLE_DEVICES and the search paths are read.
        root: of the file system: device files, the driver's record, the marks of a container.
    """
    switched_on = no_cann(environment) == ("", "")
    installation = read_installation(Path(environment["ASCEND_HOME_PATH"]), environment) if switched_on else None
    emulator = None if installation is None else installation.emulator
    if emulator is not None:
        yield _warn(
            "emulated",
            f"CANN and its devices are emulated here: {emulator}",
            "Every result says so, and `workbench export` refuses it without --allow-emulated. To measure, source the "
            "set_env.sh of a real CANN in a new shell.",
        )
    yield from _toolkit(installation, environment)
    yield _compiler(installation, environment)
    yield _runtime(environment)
    yield _amct(environment)
    yield from _device_findings(environment, root, emulated=emulator is not None)


def _toolkit(installation: Installation | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    if installation is None:
        yield _warn("toolkit", *no_cann(environment))
        return
    release, version, home = installation.release, installation.version, installation.home
    if problem := cann_problem(release):
        yield _warn("toolkit", f"{problem}; found at {home}", REMEDY)
    else:
        build = "" if version == release else f" (build {version})"
        yield _ok("toolkit", f"CANN {release}{build} at {home}")
    if not version:
        remedy = "The installer was interrupted, or the folder copied in part: install the toolkit again."
        yield _warn("packages", f"half an installation: no version.info below {home}", remedy)
    parts = [(name, installation.packages.get(name)) for name in ("compiler", "ge-compiler", "opp", "runtime")]
    mixed = [f"{name} {found}" for name, found in parts if found and not same_release(found, version)]
    if mixed:
        remedy = f"Install toolkit and ops package of one release, {CANN_WANTED}, into one folder."
        yield _warn("packages", f"parts of other releases: {', '.join(mixed)}", remedy)
    kernels = ", ".join(installation.kernels)
    if OPERATOR_KERNELS in installation.kernels:
        yield _ok("operators", f"kernels of {kernels}")
    else:
        have = f"only of {kernels}" if kernels else "none"
        lacking = f"kernels of {OPERATOR_KERNELS} are missing ({have}): ATC cannot compile for a 910B3"
        remedy = f"Install the ops package of the 910b for CANN {CANN_WANTED} (before 8.5: the kernels package)."
        yield _warn("operators", lacking, remedy)
    opp = environment.get("ASCEND_OPP_PATH", "")
    if not opp or not Path(opp).is_dir():
        why = f"names {opp}, which is no folder" if opp else "is not set"
        yield _warn("environment", f"ASCEND_OPP_PATH {why}: half of set_env.sh", f"source {home}/set_env.sh")


def _compiler(installation: Installation | None, environment: Mapping[str, str]) -> Finding:
    atc = installation.atc if installation is not None else tool_of("atc", environment)
    if atc is None:
        return _warn("compiler", "no atc", "It comes with the toolkit; compiling needs no NPU.")
    if installation is not None and compiler_of_another(installation, environment) is not None:
        remedy = f"source {installation.home}/set_env.sh again, in a new shell; where it has no bin/atc, install it."
        return _warn("compiler", f"{atc} is not of the CANN at {installation.home}", remedy)
    return _ok("compiler", str(atc))


def _runtime(environment: Mapping[str, str]) -> Finding:
    """Whether `import acl` works, tried in a process of its own: a library that does not fit may end it."""
    try:
        ended = run_apart([sys.executable, "-P", "-c", _ASK_ACL], environment=environment, timeout_s=_IMPORT_TIMEOUT_S)
    except OSError as error:
        return _warn("runtime", f"import acl cannot be tried: {error}", "Look at the message.")
    if ended.code is None:
        late = f"import acl does not end within {_IMPORT_TIMEOUT_S:g} s"
        return _warn("runtime", late, "Look at dmesg: a card may hang.")
    lines = ended.output.strip().splitlines()
    if ended.code != 0:
        why = lines[-1] if lines else f"exit code {ended.code}"
        if why.endswith("No module named 'acl'"):
            return _warn("runtime", "no Python module acl", "set_env.sh puts it on PYTHONPATH; it needs the driver.")
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
        remedy = (
            "Optional: the workbench has its own engine. Of CANN 8.5 it wants onnx 1.14.0 with onnxruntime 1.16.0: "
            f"give it a virtual environment of its own and name that one's interpreter in {AMCT_PYTHON}."
        )
        return _warn("AMCT", "no Python module amct_onnx", remedy)
    known = found.versions
    others = f"with onnx {known['onnx']}, onnxruntime {known['onnxruntime']}, {found.python}"
    return _ok("AMCT", f"amct_onnx {known['amct_onnx']} {others}")


def _ok(name: str, value: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="ok", value=value)


def _warn(name: str, value: str, remedy: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="warn", value=value, remedy=remedy)


# --- driver, cards, device files, containers, visibility -------------------------------------------------------------


MANAGERS = tuple(Path(device).name for device in DEVICES)
CHIP = "910B3"


def _device_findings(environment: Mapping[str, str], root: Path, *, emulated: bool) -> Iterator[Finding]:
    """Driver, firmware, cards; and device files, container and visibility where there is something to say of them.

    Args:
        emulated: device files and driver files are not expected then.
    """
    cards, loaded, trouble = seen_cards(environment)
    folder, installed, firmware_file = driver_files(root)
    driver = loaded or installed
    install = f"Install the NPU driver {DRIVER_WANTED} or newer with its firmware; only compiling needs none."
    if problem := driver_problem(driver) if driver else "no version found":
        yield _warn("driver", problem, install)
    else:
        yield _ok("driver", driver)
    if loaded and installed and not emulated and version_key(loaded) != version_key(installed):
        yield _warn("driver", f"{loaded} is loaded, {installed} is installed", "Reboot: the new driver is not loaded.")

    board = details("board", cards[0].npu_id, environment) if cards else {}
    firmware, fits = board.get("firmware version") or firmware_file, board.get("compatibility", "OK")
    if firmware and fits.upper() not in ("OK", "NA"):
        yield _warn("firmware", f"{firmware} does not fit the driver: {fits}", "Install the firmware of that driver.")
    elif firmware:
        yield _ok("firmware", firmware)

    in_container, names = _in_container(root), [card.name for card in cards]
    count = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    if not cards:
        way = "; in a container, mount /dev/davinci* and the driver's folder."
        if in_container:
            way = "; this is a container: give it cards of the host (--device=/dev/davinci0, and see below)."
        yield _warn("device", trouble, f"Install the driver and firmware of the Atlas A2{way}")
    elif any(name.removeprefix("Ascend") != CHIP for name in names):
        yield _warn("device", f"{count}, and not {CHIP}", "Compiled for the chip that is there; limits may not fit.")
    else:
        yield _ok("device", count)
    yield from map(_card, cards)
    yield from _visibility(environment, cards)
    expected = bool(environment.get("ASCEND_HOME_PATH")) or npu_smi_path(environment) is not None
    if not emulated:
        yield from _nodes(root / "dev", expected, in_container)
        if in_container and expected and not (folder / "driver/lib64").is_dir():
            mounted = " ".join(f"-v {path}:{path}" for path in DRIVER_MOUNTS)
            yield _warn("container", f"the driver is not mounted: no {folder}/driver/lib64", f"Start it with {mounted}")


def _card(card: Card) -> Finding:
    """Health, power, temperature, memory; who else uses it."""
    seen, parts = card.reading, [card.health]
    figures = ((seen.power_w, "W"), (seen.temperature_c, "°C"), (seen.utilization_percent, "% AI core"))
    parts += [f"{figure:g} {unit}" for figure, unit in figures if figure is not None]
    if seen.memory_bytes is not None and seen.memory_total_bytes:
        parts.append(f"HBM {seen.memory_bytes / MIB:.0f} of {seen.memory_total_bytes / MIB:.0f} MB used")
    name = f"card {card.npu_id}" + (f" chip {card.chip}" if card.chip else "")
    text = ", ".join(parts)
    if card.health.upper() not in ("OK", "UNKNOWN"):
        remedy = f"`npu-smi info -t health -i {card.npu_id} -c {card.chip}` names the fault; do not measure on it."
        return _warn(name, text, remedy)
    if card.processes:
        remedy = "Times measured beside other work are too long: use an idle card, or wait."
        return _warn(name, f"{text}; in use by {', '.join(card.processes)}", remedy)
    return _ok(name, text)


def _visibility(environment: Mapping[str, str], cards: Sequence[Card]) -> Iterator[Finding]:
    if VARIABLE not in environment:
        return
    present = [card.logic_id for card in cards if card.logic_id is not None]
    try:
        visible = visible_devices(environment, present or None)
    except ToolchainError as error:
        remedy = f"Write ascending device ids without repeats, such as {VARIABLE}=0,1, or unset it."
        yield _warn("visible", str(error), remedy)
        return
    seen = ", ".join(f"{device} as {index}" for index, device in enumerate(visible or ()))
    alone = f"device {seen} ({VARIABLE}); msprof does not work with it"
    yield _ok("visible", alone if seen else f"every device ({VARIABLE} is empty)")


def _nodes(dev: Path, expected: bool, in_container: bool) -> Iterator[Finding]:
    """Device files, and whether this user may read and write them."""
    cards = sorted(dev.glob("davinci[0-9]*"), key=lambda p: (len(p.name), p.name))
    present = [dev / name for name in MANAGERS if (dev / name).exists()]
    if not cards and not present and not expected:
        return
    missing = [f"{dev}/{name}" for name in MANAGERS if not (dev / name).exists()]
    if not cards:
        missing.insert(0, f"{dev}/davinci<N>")
    if missing:
        passed = " ".join(f"--device={name.replace('<N>', '0')}" for name in missing)
        unloaded = "The driver is not loaded: see `lsmod | grep drv`."
        way = f"Start the container with {passed}" if in_container else unloaded
        yield _warn("device files", f"missing: {', '.join(missing)}", way)
    barred = [node for node in (*cards, *present) if not os.access(node, os.R_OK | os.W_OK)]
    if barred:
        groups = ",".join(sorted({_group_of(node) for node in barred}))
        inside = "; in a container, start it with --group-add of that group's number." if in_container else "."
        remedy = f"sudo usermod -aG {groups} $USER, then log in again{inside}"
        yield _warn("rights", f"no right to read and write {', '.join(map(str, barred))}", remedy)
    if not missing and not barred:
        yield _ok("device files", f"{', '.join(node.name for node in (*cards, *present))}: readable and writable")


def _group_of(node: Path) -> str:
    """Name of the group that a device file belongs to; HwHiAiUser as a rule (pyacl.md §6.4)."""
    try:
        return node.group()
    except KeyError:
        return str(node.stat().st_gid)


def _in_container(root: Path) -> bool:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    try:
        control = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(word in control for word in ("docker", "kubepods", "containerd", "lxc"))
