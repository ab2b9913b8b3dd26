"""Flags of ATC 8.5.0 that a space may name and that are passed on as they are: those without a setting of their own.

They stand in `AscendCompile.options` as the vendor spells them, and are part of the candidate's key. docs/ascend.md
says of every other flag what sets it, or why nothing does. What flags forbid each other ATC says itself, and
`atc.atc` explains. Names and values are those of the tag v8.5.0 of the ge repository, support of Atlas A2, the
family of the 910B3, that of the 8.5.0 option pages.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from workbench.values.dimension import Dimension
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import CompileError, ConfigError, nearest

PREFIX = "compile."
BANK = "op_bank_path"
"""Its value names a folder: its path, @, and the sha256 of what it holds."""

_VALUES = "ge v8.5.0 api/atc/cmd_flag_info.cc:27-53"
_CHECKS = "ge v8.5.0 api/atc/main_impl.cc:633-860,1618-1660"


def _choice(about: str, *values: str) -> Dimension:
    return Dimension(about=about, values=values, may_be_off=True, source=_VALUES)


def _text(about: str, source: str = _CHECKS) -> Dimension:
    return Dimension(about=about, may_be_off=True, source=source)


_PASSED: Mapping[str, Dimension] = {
    "output_type": _text(
        "type of the outputs: one for all, or node:0:FP16;… (the session gives back the model's own types)",
        "ge v8.5.0 api/atc/omg.cc:66-69,300-375",
    ),
    "host_env_os": _text("operating system the OM is for, for cross builds"),
    "host_env_cpu": _text("processor architecture the OM is for, such as aarch64"),
    "virtual_type": _choice("1: the OM may run on a slice of a device (vNPU)", "0", "1"),
    "aicore_num": _text(
        "cube|vector cores the OM may use, such as 20|40", "ge v8.5.0 base/common/platform_info_util.cc:134-153"
    ),
    "input_fp16_nodes": _text("inputs that become FP16, in1;in2"),
    "disable_reuse_memory": _choice("1: device memory is not reused between operators", "0", "1"),
    "ac_parallel_enable": _choice("1: AI CPU beside AI Core, dynamic shapes only", "0", "1"),
    "quant_dumpable": _choice("1: quantized operators stay unfused, so that dumps compare; costs speed", "0", "1"),
    "sparsity": _choice("1: 4:2 structured sparsity of a model that is sparse already", "0", "1"),
    "oo_dead_code_elimination": _choice("false: dead branches stay", "true", "false"),
    "topo_sorting_mode": _choice(
        "order of operators: 0 breadth first, 1 depth first, 2 reversed depth first, 3 stable", "0", "1", "2", "3"
    ),
    "op_compiler_cache_mode": _choice("compiled kernels are kept between compiles", "enable", "disable", "force"),
    "op_debug_level": _choice("1 to 4: kernels keep their sources; 1 and 2 slow the model", "0", "1", "2", "3", "4"),
    "deterministic": _choice("1: bit-stable repeats, slower", "0", "1"),
    "atomic_clean_policy": _choice("1: memory of each operator is cleaned by itself", "0", "1"),
    "is_weight_clip": _choice(
        "0: float32 weights beyond float16 become infinite instead of its largest number", "0", "1"
    ),
    "export_compile_stat": _choice("when fusion_result.json is written; with 0 no fusions are told", "0", "1", "2"),
    "log": _choice("level of ATC's own log; error unless it is named", "debug", "info", "warning", "error", "null"),
    BANK: Dimension(
        about="folder of an operator bank that AOE filled, relative to the space file. Whether one can be filled for a "
        "910B3 the vendor's pages of 8.5 disagree on: that of --job_type marks Atlas A2 as supported, that of the "
        "tuning workflow says that offline inference cannot be tuned on A2 and A3",
        may_be_off=True,
        file="folder",
        source="ATC manual 9.2 (atc.md §9)",
    ),
}
"""Flag → what a space may say of it, and is passed on."""

PASSED: Mapping[str, Dimension] = {PREFIX + name: dimension for name, dimension in _PASSED.items()}
"""Name in a space → what is passed on."""


def check_options(options: Mapping[str, str]) -> None:
    """Refuse a name that is not passed on, and what ATC takes and does wrongly by.

    Raises:
        ConfigError: the key is that of the space.
    """
    for name in options:
        if PREFIX + name not in PASSED:
            raise ConfigError("is no flag that is passed on to ATC.", key=PREFIX + name, hint=nearest(name, _PASSED))
    if BANK in options and options.get("op_compiler_cache_mode") == "enable":
        rule, hint = "hides the bank: kernels that were compiled without it are taken.", "Leave one of the two out."
        raise ConfigError(f"`enable` {rule}", key=f"{PREFIX}op_compiler_cache_mode", hint=hint)


def copied_bank(options: Mapping[str, str], to: Path) -> dict[str, Path]:
    """Flag → a copy of the operator bank below `to`, so that nothing changes it while ATC reads, and that its own path
    is not in the OM; nothing where the candidate names none.

    Raises:
        CompileError: the folder is gone, or holds something else than when the space was read.
    """
    if BANK not in options:
        return {}
    path, _, wanted = options[BANK].rpartition("@")
    try:
        folder_digest(Path(path))  # within its bounds, before it is copied
        copy = Path(shutil.copytree(path, to / BANK))
        found = folder_digest(copy)
    except ConfigError as error:
        raise CompileError(f"compile.{BANK}: {error}") from error
    if found != wanted:
        raise CompileError(
            f"compile.{BANK}: {path} holds something else (sha256 {found[:12]}) than when the space was read "
            f"({wanted[:12]}). Put it back, or begin a new sweep with --fresh."
        )
    return {BANK: copy}
