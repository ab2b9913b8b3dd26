"""Everything of an Ascend machine that can change a compiled model or a measured number, as one value."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import logging
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from workbench.targets import description as targets
from workbench.targets.ascend.amct.process import VARIABLE as AMCT_PYTHON
from workbench.targets.ascend.installation import (
    Installation,
    cann_problem,
    compiler_of_another,
    driver_files,
    driver_problem,
    find_installation,
)
from workbench.targets.ascend.npu_smi import (
    MIB,
    VARIABLE,
    Card,
    details,
    number,
    seen_cards,
    soc_name,
    visible_devices,
)
from workbench.targets.ascend.settings import ASCEND, SOC_VERSION
from workbench.values.artifact import Toolchain
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.modelled_times.device_data import chip_names

_log = logging.getLogger(__name__)

_ABOUT = ("ASCEND", "CANN")
_SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "TUNE_BANK_PATH", AMCT_PYTHON)
DEFAULT_BANK = "Ascend/latest/data/aoe/custom/op"
"""Below HOME: where AOE keeps an operator bank, and ATC looks for one that nobody named (atc.md §9)."""
_KEPT_FROM_ATC = {
    "TUNE_BANK_PATH": "name its folder in the space, compile.op_bank_path",
    "ASCEND_CUSTOM_OPP_PATH": "no key holds what custom operators compute",
}
_EMULATED, _FIRST = "CANN_EMULATOR_SOC", "WORKBENCH_EMULATED_SOC"
"""The chip that is emulated, and the one that the user's environment names, which child processes learn by it."""


def ascend_toolchain() -> Toolchain:
    """CANN, driver, firmware and chip of this machine; asked once for each environment of this process.

    Versions that the workbench is not written for are logged as a warning, and do not stop anything: they may do.

    Raises:
        ToolchainError: no CANN, half of one, or no chip; says what is missing and how to get it.
    """
    names = sorted(n for n in os.environ if n.startswith(_ABOUT) or n in _SEARCHED)
    return _look(tuple((name, os.environ[name]) for name in names))


def forget_toolchain() -> None:
    """Ask again at the next call: after an update of the driver, or in a test."""
    _look.cache_clear()


def choose_chip(soc_version: str) -> None:
    """Have the emulated kit be of this chip, '' for the one that the environment named first; a real one is what it is.

    Raises:
        ConfigError: no chip of the family, or the emulated kit is in use in this process as another one.
    """
    if soc_version and soc_version not in (chips := chip_names()):
        raise ConfigError(f"{soc_version!r} is no chip of the 910B family.", hint=nearest(soc_version, chips))
    if not os.environ.get("CANN_EMULATOR_VERSION"):
        return
    here = os.environ.get(_EMULATED, "")
    wanted = soc_version or os.environ.get(_FIRST, here)
    if here == wanted:
        return
    loaded = getattr(sys.modules.get("acl"), "get_soc_name", None)  # it is of one chip from its import on
    if loaded is not None and loaded() != (wanted or SOC_VERSION):
        raise ConfigError(
            f"this process emulates {loaded()} already, and {wanted or SOC_VERSION} is asked for.",
            hint="Read and sweep each experiment of another chip in a process of its own.",
        )
    os.environ.setdefault(_FIRST, here)
    os.environ[_EMULATED] = wanted
    if not soc_version:
        del os.environ[_FIRST]
    forget_toolchain()


def device_ids(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """The machine's logic ids of the devices that this process sees, without a word to pyACL: those of
    ASCEND_RT_VISIBLE_DEVICES, else npu-smi's.

    Raises:
        ToolchainError: the variable is wrong.
    """
    cards, _, why = seen_cards(environment)
    present = [card.logic_id for card in cards if card.logic_id is not None]
    visible = visible_devices(environment, present or None)
    if visible is not None:
        return visible
    if not cards:
        _log.warning("%s: device 0 alone is used.", why)
    # npu-smi that lists cards without their logic ids: they count from 0 [inferred]
    return tuple(sorted(present)) if len(present) == len(cards) > 0 else tuple(range(max(1, len(cards))))


def cards() -> tuple[targets.Card, ...]:
    """A single one is left as it is, since msprof cannot work where the variable is set (atc.md, profiling)."""
    ids = device_ids()
    return tuple(targets.Card(name=str(n), environment={VARIABLE: str(n)} if len(ids) > 1 else {}) for n in ids)


@functools.cache
def _look(decided_by: tuple[tuple[str, str], ...]) -> Toolchain:
    """By the environment that decides it: asking the tools takes seconds, and every candidate asks."""
    environment = dict(os.environ)
    installation = find_installation(environment)
    acl, why_no_acl = None, ""
    try:
        acl = importlib.import_module("acl")
    except (ImportError, OSError) as error:  # OSError: a library of CANN that does not load
        why_no_acl = f"the module acl cannot be imported ({error})"
    cards, driver, why_no_cards = seen_cards(environment)
    # from acl, else from npu-smi (pyacl.md §6.3)
    asked: Any = getattr(acl, "get_soc_name", None)
    name = (asked() if asked is not None else None) or (cards[0].name if cards else "")
    device = soc_name(str(name)) if name else ""
    if not device:
        raise ToolchainError(
            f"CANN {installation.release} is at {installation.home}, but no NPU is seen: {why_no_acl}; {why_no_cards}. "
            "Run `workbench doctor`, which looks at driver, device nodes and rights one by one."
        )
    card = next((card for card in cards if soc_name(card.name) == device), None)
    board, common = ({} if card is None else details(kind, card.npu_id, environment) for kind in ("board", "common"))
    _, files_driver, files_firmware = driver_files()
    compiler = compiler_of_another(installation, environment)
    said = (installation.emulator, compiler and compiler.emulator, getattr(acl, "EMULATOR", None))
    emulators = [name for name in said if name]
    release, parts = installation.release, installation.packages
    components = {
        "cann": release,
        **({"cann build": installation.version} if installation.version != release else {}),
        **{f"cann {part}": parts[part] for part in ("opp", "runtime") if parts.get(part, release) != release},
        **({"atc": f"of another CANN, {compiler.release or 'unknown'}"} if compiler else {}),
        "amct_onnx": _amct(environment),
        "driver": driver or board.get("software version", "") or files_driver or "unknown",
        "firmware": board.get("firmware version", "") or files_firmware or "unknown",
        "numpy": np.__version__,
        "onnx": onnx.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if emulators:
        components["emulator"] = ", ".join(dict.fromkeys(str(name) for name in emulators))
    bank = Path(environment.get("HOME", "/"), DEFAULT_BANK, device)
    if bank.is_dir() and any(bank.iterdir()):
        components["operator bank"] = folder_digest(bank)[:16]
    for variable, why in _KEPT_FROM_ATC.items():
        if environment.get(variable):
            _log.warning("%s is not passed to ATC: %s.", variable, why)
    driver = components["driver"]
    problems = (cann_problem(installation.release), "" if driver == "unknown" else driver_problem(driver))
    for problem in filter(None, problems):
        _log.warning("%s: what it does with our settings is not known. `workbench doctor` says more.", problem)
    return Toolchain(
        target=ASCEND,
        components=dict(sorted(components.items())),
        device=device,
        features=_features(card, common, installation),
        emulated=bool(emulators),
    )


def _amct(environment: Mapping[str, str]) -> str:
    """Version of amct_onnx by what its wheel left behind; its interpreter, which takes a second to start, is not asked.

    An interpreter whose packages lie elsewhere is known by its path alone.
    """
    named = environment.get(AMCT_PYTHON)
    if not named:
        try:
            return importlib.metadata.version("amct_onnx")
        except importlib.metadata.PackageNotFoundError:
            return "none"
    python = Path(shutil.which(named, path=environment.get("PATH")) or named).absolute()
    packages = [str(place) for place in python.parents[1].glob("lib*/python3*/site-packages")]
    found = next(iter(importlib.metadata.distributions(name="amct_onnx", path=packages)), None)
    return found.version if found is not None else f"of {python}"


def _features(card: Card | None, common: Mapping[str, str], installation: Installation) -> tuple[str, ...]:
    """Facts that select kernels or bound speed, and do not move while the machine runs."""
    hbm = None if card is None else card.reading.memory_total_bytes
    cores, clock = (number(common.get(key, "")) for key in ("aicore count", "aicore freq(mhz)"))
    told = ((hbm and hbm / MIB, "MB HBM"), (cores, "AI cores"), (clock, "MHz AI core clock"))
    facts = [f"{value:.0f} {what}" for value, what in told if value is not None]
    return tuple(sorted([*facts, *(f"kernels {name}" for name in installation.kernels)]))
