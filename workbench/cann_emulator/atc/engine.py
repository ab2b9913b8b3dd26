"""The engine's start: the chip, and the files whose content is first looked at here. It comes after every check of the
flags and before anything of the model (ge v8.5.0 api/atc/main_impl.cc:1457)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from workbench.cann_emulator.atc.fusion_result import forget_earlier_result
from workbench.cann_emulator.atc.fusion_switch import Switches, read_switches
from workbench.cann_emulator.atc.precision import Precision
from workbench.cann_emulator.atc.precision_files import check_op_debug_config, read_precision
from workbench.cann_emulator.atc.soc import check_engine_options


class Screen(Protocol):
    """What a compile says, and where."""

    def line(self, text: str) -> None: ...

    def dot(self) -> None: ...

    def log(self, level: str, module: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Everything that decides how a graph is compiled."""

    soc_version: str
    switches: Switches
    precision: Precision


def start_engine(options: Mapping[str, str], console: Screen) -> Engine:
    """Read what the flags name: the chip, the switches, the lists of types, the debug file, in this order.

    Raises:
        AtcFailure: of the chip (EE1001, E20101, E20103), the switch file (E21001, E21002, E20003), or a precision file.
    """
    soc_version = check_engine_options(options)
    forget_earlier_result()
    switches = read_switches(options.get("fusion_switch_file", ""), options.get("oo_level") or "O3")
    warned = read_precision(options)
    check_op_debug_config(options.get("op_debug_config", ""))
    for warning in warned.warnings:
        console.log("warning", "FE", warning)
    return Engine(soc_version=soc_version, switches=switches, precision=warned.precision)
