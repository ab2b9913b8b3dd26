"""How every flag of ATC is reached: set by the workbench, by a setting of its own, or passed on as a space names it.

`REACHED` is the whole answer, flag by flag; docs/ascend.md shows it. What is passed on stands in
`AscendCompile.options` as the vendor spells it, is checked by the flag table, and is part of the candidate's key; of a
file that such a flag names it is the content.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.targets.ascend.atc.flag_table import FLAGS
from workbench.values.dimension import Dimension
from workbench.values.errors import CompileError, ConfigError

PREFIX = "compile."
CUSTOM_OPERATORS = "custom_opp_path"
"""No flag: the folder of an installed package of custom operators, which ATC looks for in ASCEND_CUSTOM_OPP_PATH
[inferred from the vendor's guide to operator development; the pages of 8.5.0 at hand do not describe it]."""
BANK = "op_bank_path"

_ABOUT: Mapping[str, str] = {
    "output_type": "type of the outputs: one for all, or node:0:FP16;… (the session gives back the model's own types)",
    "host_env_os": "operating system the OM is for, for cross builds",
    "host_env_cpu": "processor architecture the OM is for, such as aarch64",
    "virtual_type": "1: the OM may run on a slice of a device (vNPU)",
    "aicore_num": "cube|vector cores the OM may use, such as 20|40",
    "input_fp16_nodes": "inputs that become FP16, in1;in2",
    "insert_op_conf": "AIPP: a prototxt, relative to the space file. The compiled input takes a picture's bytes",
    "disable_reuse_memory": "1: device memory is not reused between operators",
    "ac_parallel_enable": "1: AI CPU beside AI Core, dynamic shapes only",
    "quant_dumpable": "1: quantized operators stay unfused, so that dumps compare; costs speed",
    "sparsity": "1: 4:2 structured sparsity of a model that is sparse already",
    "oo_dead_code_elimination": "false: dead branches stay",
    "topo_sorting_mode": "order of operators: 0 breadth first, 1 depth first, 2 reversed depth first, 3 stable",
    "op_compiler_cache_mode": "compiled kernels are kept between compiles",
    "op_debug_level": "1 to 4: kernels keep their sources; 1 and 2 slow the model",
    "op_debug_config": "file of checks that operators are compiled with, relative to the space file",
    "deterministic": "1: bit-stable repeats, slower",
    "atomic_clean_policy": "1: memory of each operator is cleaned by itself",
    "is_weight_clip": "0: float32 weights beyond float16 become infinite instead of its largest number",
    "export_compile_stat": "when fusion_result.json is written; with 0 no fusions are told",
    "log": "level of ATC's own log; error unless it is named",
}

OWN: Mapping[str, str] = {
    **{name: "always set by the workbench" for name in ("mode", "framework", "model", "output", "soc_version", "om")},
    **{name: "always set by the workbench" for name in ("json", "input_format", "input_shape", "display_model_info")},
    "precision_mode": "`precision.mode`",
    "precision_mode_v2": "`precision.mode`, for the values that only this flag has",
    "fusion_switch_file": "`compile.fusions.NAME`",
    "dynamic_dims": "`compile.shapes: gears`",
    **{
        name: f"`compile.{name}`"
        for name in (
            *("modify_mixlist", "keep_dtype", "customize_dtypes", "op_precision_mode", "op_select_implmode"),
            *("optypelist_for_implmode", "oo_level", "oo_constant_folding", "buffer_optimize"),
            *("tiling_schedule_optimize", "enable_single_stream", "enable_small_channel"),
        )
    },
}
"""Flag → what sets it."""

NOT_PASSED: Mapping[str, str] = {
    "dynamic_batch_size": "the same gears are named by `compile.shapes: gears`",
    "dynamic_image_size": "the same gears are named by `compile.shapes: gears`",
    "input_hint_shape": "it is for open shapes, and every compiled shape is closed",
    "out_nodes": "sessions give the model's own outputs; cut the ONNX file instead",
    "is_input_adjust_hw_layout": "callers would have to feed NC1HWC0",
    "is_output_adjust_hw_layout": "callers would be given NC1HWC0",
    "external_weight": "an OM would not be whole without files beside it, and stores and bundles hold whole files",
    "op_compiler_cache_dir": "ASCEND_CACHE_PATH of the environment is passed on; no result depends on it",
    "debug_dir": "its files stay in the compile's own folder, which goes away",
    "check_report": "as debug_dir",
    "save_original_model": "as debug_dir",
    "dump_mode": "it belongs to mode 1, which the workbench uses to look into files",
}
"""Flag that ATC has on a 910B3 → why no space names it."""

FILES = ("insert_op_conf", "op_debug_config")
"""Flags whose value is a file."""
FOLDERS = (CUSTOM_OPERATORS, BANK)
"""What names a folder: its path, @, and the sha256 of what it holds."""

REACHED: Mapping[str, str] = {
    name: OWN.get(name)
    or (f"`compile.{name}`, passed on" if name in (*_ABOUT, BANK) else "")
    or f"not: {NOT_PASSED.get(name) or flag.never}"
    for name, flag in FLAGS.items()
}
"""Every flag → how it is reached, or why not."""

PASSED: Mapping[str, Dimension] = {
    **{
        PREFIX + name: Dimension(
            about=about,
            values=FLAGS[name].values,
            may_be_off=True,
            file="text" if name in FILES else "",
            excludes=", ".join(FLAGS[name].excludes),
            source=FLAGS[name].source,
        )
        for name, about in _ABOUT.items()
    },
    PREFIX + CUSTOM_OPERATORS: Dimension(
        about="folder of custom operators (vendors/NAME), relative to the space file, which ATC finds in "
        "ASCEND_CUSTOM_OPP_PATH; what AI CPU operators need at run time must be on the machine that runs the OM",
        may_be_off=True,
        file="folder",
        source="ASCEND_CUSTOM_OPP_PATH [inferred]",
    ),
    PREFIX + BANK: Dimension(
        about="folder of an operator bank that AOE filled, relative to the space file. Whether one can be filled for a "
        "910B3 the vendor's pages of 8.5 disagree on: that of --job_type marks Atlas A2 as supported, that of the "
        "tuning workflow says that offline inference cannot be tuned on A2 and A3",
        may_be_off=True,
        file="folder",
        source=FLAGS[BANK].source,
    ),
}
"""Name in a space → what is passed on."""


def check_options(options: Mapping[str, str]) -> None:
    """Refuse what ATC would refuse of these flags alone.

    Raises:
        ConfigError: no flag that is passed on, or a value it does not take; the key is that of the space.
    """
    from workbench.targets.ascend.atc.flags import check_flag  # it needs onnx, which a description must not

    for name, value in options.items():
        if PREFIX + name not in PASSED:
            hint = REACHED.get(name, "ATC has no such flag")
            raise ConfigError("is not passed on to ATC.", key=PREFIX + name, hint=f"Reached: {hint}.")
        if not value.strip():
            raise ConfigError("is empty.", key=PREFIX + name, hint="Leave it out.")
        if name in (*FILES, *FOLDERS):
            continue
        try:
            check_flag(name, value)
        except CompileError as error:
            raise ConfigError(str(error), key=PREFIX + name) from error
    if BANK in options and options.get("op_compiler_cache_mode") == "enable":
        rule, hint = "hides the bank: kernels that were compiled without it are taken.", "Leave one of the two out."
        raise ConfigError(f"`enable` {rule}", key=f"{PREFIX}op_compiler_cache_mode", hint=hint)
