"""The engine's start: the chip (its name, its cores, whether it has bfloat16; atc.md §3.1, §7.2), and the files whose
content is first looked at here. It comes after every check of the flags and before anything of the model (ge v8.5.0
api/atc/main_impl.cc:1457)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.failure import AtcFailure, failure, invalid
from workbench.cann_emulator.atc.fusion import Switches, read_switches
from workbench.cann_emulator.atc.operator_types import OPERATORS, words
from workbench.cann_emulator.atc.outputs import forget_earlier_result
from workbench.cann_emulator.atc.precision import Precision
from workbench.cann_emulator.atc.precision_files import check_op_debug_config, read_precision

_NAMES = words(OPERATORS["chips"])
"""Platform files of the runtime repository v8.5.0, src/platform/platform_config. Chips of older releases, such as
Ascend310, have none and are unknown [inferred: 8.5.0 ships more packages than are open, which could add some]."""
_SAME_AS = {"Ascend910": "Ascend910A"}
_CORES: Mapping[str, tuple[int, int]] = OPERATORS["cores"]
"""Cube and vector cores, of the platform files; chips that are not here are not checked."""
_BF16_CHIPS = re.compile(r"Ascend910B[1-4]|Ascend910_9")
"""Those that convert float32 to bfloat16: `f322bf16*` in their platform files [inferred beyond 910B]."""
_BF16_MODES = frozenset({"allow_mix_precision_bf16", "allow_fp32_to_bf16", "mixed_bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Everything that decides how a graph is compiled."""

    soc_version: str
    switches: Switches
    precision: Precision


def start_engine(options: Mapping[str, str], console: Console) -> Engine:
    """Read what the flags name: the chip, the switches, the lists of types, the debug file, in this order.

    Raises:
        AtcFailure: of the chip (EE1001, E20101, E20103, E10001), the switch file (E21001, E21002, E20003), or a
            precision file.
    """
    soc_version = options.get("soc_version", "")
    soc_version = _SAME_AS.get(soc_version, soc_version)
    if soc_version not in _NAMES:
        # the runtime says so, before the engine would (runtime v8.5.0 src/runtime/api/api_c_soc.cc:84, called by ge
        # v8.5.0 gelib.cc:106,324)
        raise failure("EE1001", extend_info=f"there is no SoC version {options.get('soc_version', '')}")
    for flag in ("precision_mode", "precision_mode_v2"):
        mode = options.get(flag, "")
        if mode in _BF16_MODES and not _BF16_CHIPS.match(soc_version):
            raise _bad_option(f"ge.exec.{flag}", mode, "bfloat16 is not supported by this chip")
    _check_aicore_num(soc_version, options.get("aicore_num", ""))
    if options.get("virtual_type") == "1" and options.get("buffer_optimize") == "l1_optimize":
        # refused per the option page BUFFER_OPTIMIZE; with which code is not established [inferred]
        raise _bad_option("ge.bufferOptimize", "l1_optimize", "it cannot be used with virtual_type 1")
    forget_earlier_result()
    switches = read_switches(options.get("fusion_switch_file", ""), options.get("oo_level") or "O3")
    precision, warnings = read_precision(options)
    check_op_debug_config(options.get("op_debug_config", ""))
    for warning in warnings:
        console.log("warning", "FE", warning)
    return Engine(soc_version=soc_version, switches=switches, precision=precision)


def _check_aicore_num(soc_version: str, value: str) -> None:
    """`cube|vector`, or one number for both; at least one core, and no more than the chip has."""
    parts = value.split("|") if value else []
    if len(parts) > 2 or not all(re.fullmatch(r"0*[1-9][0-9]{0,8}", part) for part in parts):
        raise invalid("aicore_num", value, 'it is one or two positive numbers, "cube|vector"')
    for number, cores in zip(parts, _CORES.get(soc_version, ()), strict=False):
        if int(number) > cores:
            raise failure("E20103", parameter="ge.aicoreNum", value=number, range=str(cores))


def _bad_option(parameter: str, value: str, reason: str) -> AtcFailure:
    return failure("E20101", parameter=parameter, value=value, reason=reason)
