"""The NPU side of the machine: driver and firmware, cards, device files with their rights, containers, visibility."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.installation import INSTALL_RECORD, driver_files
from workbench.targets.ascend.npu_smi import Card, Overview, details, npu_smi_path, overview
from workbench.targets.ascend.versions import DRIVER_WANTED, driver_problem
from workbench.targets.ascend.visible_devices import VARIABLE, visible_devices
from workbench.values.errors import ToolchainError
from workbench.values.finding import Finding
from workbench.values.versions import version_key

MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
"""Device files that every process on an NPU needs besides its /dev/davinciN (pyacl.md §6.4)."""

CHIP = "910B3"

_Ok = Callable[[str, str], Finding]
_Warn = Callable[[str, str, str], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the system keeps what is looked at.

    Attributes:
        root: of the file system, for the marks of a container.
        record: the driver's install record.
    """

    root: Path = Path("/")
    dev: Path = Path("/dev")
    record: Path = INSTALL_RECORD


def device_findings(
    environment: Mapping[str, str], machine: Machine, *, group: str, emulated: bool
) -> Iterator[Finding]:
    """Driver, firmware, cards; and device files, container and visibility where there is something to say of them.

    Args:
        emulated: device files and driver files are not expected then.
    """

    def ok(name: str, value: str) -> Finding:
        return Finding(group=group, name=name, status="ok", value=value)

    def warn(name: str, value: str, remedy: str) -> Finding:
        return Finding(group=group, name=name, status="warn", value=value, remedy=remedy)

    seen, trouble = _seen(environment)
    files = driver_files(machine.record)
    loaded = seen.driver if seen is not None and seen.driver else ""
    driver = loaded or files.driver
    install = f"Install the NPU driver {DRIVER_WANTED} or newer with its firmware; only compiling needs none."
    if not driver:
        yield warn("driver", "no version found", install)
    elif driver_problem(driver):
        yield warn("driver", driver_problem(driver), install)
    else:
        yield ok("driver", driver)
    if loaded and files.driver and not emulated and version_key(loaded) != version_key(files.driver):
        yield warn(
            "driver", f"{loaded} is loaded, {files.driver} is installed", "Reboot: the new driver is not loaded."
        )

    cards = seen.cards if seen is not None else ()
    board = _board(cards, environment)
    firmware = board.get("Firmware Version") or files.firmware
    fits = board.get("Compatibility", "OK")
    if firmware and fits.upper() not in ("OK", "NA"):
        yield warn("firmware", f"{firmware} does not fit the driver: {fits}", "Install the firmware of that driver.")
    elif firmware:
        yield ok("firmware", firmware)

    in_container = _in_container(machine.root)
    if not cards:
        remedy = "Install the driver and firmware of the Atlas A2" + (
            "; this is a container: give it cards of the host (--device=/dev/davinci0, and see below)."
            if in_container
            else "; in a container, mount /dev/davinci* and the driver's folder."
        )
        yield warn("device", trouble, remedy)
    else:
        names = [card.name for card in cards]
        count = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        strange = [name for name in dict.fromkeys(names) if name.removeprefix("Ascend") != CHIP]
        yield (
            warn("device", f"{count}, and not {CHIP}", "Compiled for the chip that is there; limits may not fit.")
            if strange
            else ok("device", count)
        )
    for card in cards:
        yield _card(card, seen, group)
    yield from _visibility(environment, cards, ok, warn)
    expected = bool(environment.get("ASCEND_HOME_PATH")) or npu_smi_path(environment) is not None
    if not emulated:
        yield from _nodes(machine.dev, expected, in_container, ok, warn)
        if in_container and expected and not (files.root / "driver/lib64").is_dir():
            yield warn(
                "container",
                f"the driver is not mounted: no {files.root}/driver/lib64",
                "Start it with -v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /usr/local/dcmi:/usr/local/dcmi "
                "-v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi -v /etc/ascend_install.info:/etc/ascend_install.info",
            )


def _seen(environment: Mapping[str, str]) -> tuple[Overview | None, str]:
    """(what npu-smi shows, why it shows no card)."""
    if npu_smi_path(environment) is None:
        return None, "no npu-smi"
    try:
        seen = overview(environment)
    except ToolchainError as error:
        return None, f"unknown: {error}"
    if not seen.readable:
        return seen, "unknown: npu-smi gives a text that cannot be read"
    return seen, "npu-smi lists no card"


def _board(cards: Sequence[Card], environment: Mapping[str, str]) -> dict[str, str]:
    if not cards:
        return {}
    try:
        return details("board", cards[0].npu_id, environment=environment)
    except ToolchainError:
        return {}  # the versions stay unknown; not every driver answers


def _card(card: Card, seen: Overview | None, group: str) -> Finding:
    """Health, power, temperature, memory; who else uses it."""
    parts = [card.health]
    figures = ((card.power_w, "W"), (card.temperature_c, "°C"), (card.aicore_percent, "% AI core"))
    parts += [f"{figure:g} {unit}" for figure, unit in figures if figure is not None]
    if card.hbm_used_mb is not None and card.hbm_total_mb:
        parts.append(f"HBM {card.hbm_used_mb:.0f} of {card.hbm_total_mb:.0f} MB used")
    name = f"card {card.npu_id}" + (f" chip {card.chip}" if card.chip else "")
    text = ", ".join(parts)
    if card.health.upper() not in ("OK", "UNKNOWN"):
        remedy = f"`npu-smi info -t health -i {card.npu_id} -c {card.chip}` names the fault; do not measure on it."
        return Finding(group=group, name=name, status="warn", value=text, remedy=remedy)
    others = [
        f"{process.name or 'process'} ({process.pid})"
        for process in (seen.processes if seen is not None else ())
        if (process.npu_id, process.chip) == (card.npu_id, card.chip)
    ]
    if others:
        remedy = "Times measured beside other work are too long: use an idle card, or wait."
        value = f"{text}; in use by {', '.join(others)}"
        return Finding(group=group, name=name, status="warn", value=value, remedy=remedy)
    return Finding(group=group, name=name, status="ok", value=text)


def _visibility(environment: Mapping[str, str], cards: Sequence[Card], ok: _Ok, warn: _Warn) -> Iterator[Finding]:
    if VARIABLE not in environment:
        return
    present = [card.logic_id for card in cards if card.logic_id is not None]
    visible = visible_devices(environment, present or None)
    remedy = f"Write ascending device ids without repeats, such as {VARIABLE}=0,1, or unset it."
    if visible.problem:
        yield warn("visible", visible.problem, remedy)
    elif not visible.devices:
        yield ok("visible", f"every device ({VARIABLE} is empty)")
    else:
        seen = ", ".join(f"{device} as {index}" for index, device in enumerate(visible.devices))
        yield ok("visible", f"device {seen} ({VARIABLE}); msprof does not work with it")


def _nodes(dev: Path, expected: bool, in_container: bool, ok: _Ok, warn: _Warn) -> Iterator[Finding]:
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
        yield warn(
            "device files",
            f"missing: {', '.join(missing)}",
            f"Start the container with {passed}"
            if in_container
            else "The driver is not loaded: see `lsmod | grep drv`.",
        )
    barred = [node for node in (*cards, *present) if not os.access(node, os.R_OK | os.W_OK)]
    if barred:
        groups = sorted({_group_of(node) for node in barred})
        yield warn(
            "rights",
            f"no right to read and write {', '.join(str(node) for node in barred)}",
            f"sudo usermod -aG {','.join(groups)} $USER, then log in again"
            + ("; in a container, start it with --group-add of that group's number." if in_container else "."),
        )
    if not missing and not barred:
        yield ok("device files", f"{', '.join(node.name for node in (*cards, *present))}: readable and writable")


def _group_of(node: Path) -> str:
    """Name of the group that a device file belongs to; HwHiAiUser as a rule (pyacl.md §6.4)."""
    number = node.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _in_container(root: Path) -> bool:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    try:
        control = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(word in control for word in ("docker", "kubepods", "containerd", "lxc"))
