"""Every flag that ATC of CANN 8.5.0 knows, with what it takes.

Names, values and defaults are those of the tag v8.5.0 of the ge repository (`api/atc/cmd_flag_info.cc`, values that
are checked while parsing; `api/atc/main_impl.cc:178-372`, defaults); support of Atlas A2, the family of the 910B3, is
that of the 8.5.0 option pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from workbench.targets.ascend.settings import PRECISION_MODES

Kind = Literal["choice", "input", "output", "directory", "text", "shapes", "numbers"]
"""'input' and 'output' are files (checked against the alphabet of paths), 'directory' is one; 'numbers' are digits,
commas and semicolons."""

_VALUES = "ge v8.5.0 api/atc/cmd_flag_info.cc:27-53"
_CHECKS = "ge v8.5.0 api/atc/main_impl.cc:633-860,1618-1660"
_DEFAULTS = "ge v8.5.0 api/atc/main_impl.cc:178-372"
_SHAPES = "ge v8.5.0 compiler/api/aclgrph/option_utils.cc:262-830"
_PAGES = "option pages of ge v8.5.0 (docs/graph_engine_api)"

DYNAMIC = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
"""Of these and input_shape_range at most one (E10009); none with a quantized model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of ATC.

    Attributes:
        values: all that a 'choice' takes.
        default: what ATC takes when it is left out; empty where there is none.
        a2: whether the vendor supports it on Atlas A2; None where that is not stated.
        code: the vendor's, for a value that is refused.
        requires: flags that must be given with it.
        excludes: flags it must not be given with, and the vendor's code for it in `excludes_code`.
        never: why this product does not pass it on a 910B3; empty where it may.
    """

    name: str
    kind: Kind = "text"
    values: tuple[str, ...] = ()
    default: str = ""
    a2: bool | None = True
    code: str = "E10001"
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    excludes_code: str = "E10001"
    never: str = ""
    source: str = _DEFAULTS


def _choice(
    name: str, *values: str, default: str = "", code: str = "E10001", a2: bool | None = True, never: str = ""
) -> Flag:
    return Flag(name=name, kind="choice", values=values, default=default, code=code, a2=a2, never=never, source=_VALUES)


def _bit(name: str, default: str = "0", *, code: str = "E10006", a2: bool | None = True, never: str = "") -> Flag:
    return _choice(name, "0", "1", default=default, code=code, a2=a2, never=never)


def _truth(name: str, default: str = "", *, a2: bool | None = True, never: str = "") -> Flag:
    return _choice(name, "true", "false", default=default, code="E10005", a2=a2, never=never)


_OTHER_FRAMEWORK = "it belongs to Caffe or TensorFlow models; this product compiles ONNX"
_RESERVED = "it is registered, but reserved by the vendor"
_SUBGRAPH = "AOE's subgraph tuning, which fills such a bank, is not supported on Atlas A2 (tfmigr2_000068)"
_COMPRESSION = "weight compression is not documented for Atlas A2"

_BASIC = (
    _choice("mode", "0", "1", "3", "5", "6", "30", default="0"),
    Flag(name="model", kind="input", source=_CHECKS),
    Flag(name="weight", kind="input", a2=False, never=_OTHER_FRAMEWORK, source=_CHECKS),
    Flag(name="om", kind="input", code="E10004", source=_CHECKS),
    Flag(name="json", kind="output", code="E10004", source=_CHECKS),
    _choice("framework", "0", "1", "3", "5", code="E10007"),
    _choice("input_format", "NCHW", "ND", "NCDHW", default="NCHW"),
    Flag(name="input_shape", kind="shapes", code="E10002", source=_SHAPES),
    Flag(
        name="input_shape_range",
        excludes=DYNAMIC,
        excludes_code="E10009",
        never="it is deprecated, and replaces --input_shape in silence; write ranges there",
        source=_SHAPES,
    ),
    # the pages exclude them; ATC's own flag check of 8.5.0 does not look
    Flag(name="input_hint_shape", excludes=DYNAMIC, excludes_code="", source=_PAGES),
    Flag(
        name="dynamic_batch_size",
        kind="numbers",
        code="E10003",
        requires=("input_shape",),
        excludes=("dynamic_image_size", "dynamic_dims", "input_shape_range"),
        excludes_code="E10009",
        source=_SHAPES,
    ),
    Flag(
        name="dynamic_image_size",
        kind="numbers",
        code="E10003",
        requires=("input_shape",),
        excludes=("dynamic_batch_size", "dynamic_dims", "input_shape_range"),
        excludes_code="E10009",
        source=_SHAPES,
    ),
    Flag(
        name="dynamic_dims",
        kind="numbers",
        requires=("input_shape",),
        excludes=("dynamic_batch_size", "dynamic_image_size", "input_shape_range"),
        excludes_code="E10009",
        source=_SHAPES,
    ),
    Flag(name="singleop", kind="input", never="it compiles single operators, not models", source=_CHECKS),
    Flag(name="output", kind="output", source=_CHECKS),
    Flag(name="output_type", source="ge v8.5.0 api/atc/omg.cc:66-69,300-375"),
    Flag(name="check_report", kind="output", default="check_result.json", source=_CHECKS),
    Flag(name="host_env_os", source=_CHECKS),
    Flag(name="host_env_cpu", source=_CHECKS),
    Flag(name="soc_version", source=_CHECKS),
    _bit("virtual_type", code="E10001"),
    _choice("core_type", "AiCore", "VectorCore", default="AiCore", a2=False, never="it has no effect on Atlas A2"),
    Flag(name="aicore_num", source="ge v8.5.0 base/common/platform_info_util.cc:134-153"),
    Flag(name="help", never="it prints the usage and compiles nothing", source=_VALUES),
    Flag(name="target", a2=None, never=_RESERVED),
    Flag(name="device_id", default="0", a2=None, never=_RESERVED),
    Flag(name="cal_conf", kind="input", a2=None, never=_RESERVED),
)

_FEATURES = (
    Flag(name="out_nodes", source=_CHECKS),
    Flag(name="input_fp16_nodes", code="E10016", source=_CHECKS),
    Flag(name="is_input_adjust_hw_layout", code="E10005", requires=("input_fp16_nodes",), source=_CHECKS),
    Flag(
        name="is_output_adjust_hw_layout", code="E10005", requires=("out_nodes",), source=_CHECKS
    ),  # [inferred]: "only with the two flags above"
    Flag(name="insert_op_conf", kind="input", excludes=("dynamic_dims",), source=_CHECKS),
    Flag(name="op_name_map", kind="input", a2=False, never=_OTHER_FRAMEWORK, source=_CHECKS),
    _bit("external_weight"),
    Flag(name="cluster_config", kind="input", a2=False, never="communication operators only", source=_PAGES),
)

_TUNING = (
    Flag(name="fusion_switch_file", kind="input", code="E21001", source=_PAGES),
    Flag(name="enable_scope_fusion_passes", never=_OTHER_FRAMEWORK, source=_PAGES),
    _choice("buffer_optimize", "l1_optimize", "l2_optimize", "off_optimize", default="l2_optimize"),
    _bit("disable_reuse_memory"),
    _truth("enable_single_stream", "false"),
    _bit("ac_parallel_enable"),
    _bit("tiling_schedule_optimize"),
    _bit("quant_dumpable"),
    _bit("enable_small_channel"),
    _truth("enable_compress_weight", "false", a2=None, never=_COMPRESSION),
    Flag(
        name="compress_weight_conf",
        kind="input",
        a2=None,
        code="E10410",
        excludes=("enable_compress_weight",),
        excludes_code="E10047",
        never=_COMPRESSION,
        source=_CHECKS,
    ),
    Flag(
        name="compression_optimize_conf",
        kind="input",
        never="its calibration needs a device in the build machine; INT8 arrives here as a deploy model",
        source="ge v8.5.0 api/atc/main_impl.cc:1283-1317",
    ),
    _bit("sparsity"),
    Flag(name="mdl_bank_path", kind="directory", never=_SUBGRAPH, source=_PAGES),
    _choice("oo_level", "O1", "O3", default="O3"),
    _truth("oo_constant_folding", "true"),
    _truth("oo_dead_code_elimination", "true"),
    _choice("topo_sorting_mode", "0", "1", "2", "3", default="1"),
    Flag(
        name="auto_tune_mode",
        a2=None,
        never="it was withdrawn: every value stops ATC (E10001)",
        source="ge v8.5.0 api/atc/main_impl.cc:1995-2035",
    ),
)

_PRECISION = (
    _choice("precision_mode", *sorted(PRECISION_MODES), default="force_fp16"),
    _choice(
        "precision_mode_v2",
        *("cube_fp16in_fp32out", "cube_hif8", "fp16", "mixed_bfloat16", "mixed_float16", "mixed_hif8", "origin"),
        default="fp16",
    ),
    Flag(name="modify_mixlist", kind="input", code="E21001", source=_CHECKS),
    Flag(name="keep_dtype", kind="input", code="E10410", source=_CHECKS),
    Flag(name="customize_dtypes", kind="input", source=_PAGES),
    Flag(name="op_precision_mode", kind="input", source=_CHECKS),
    _choice(
        "op_select_implmode",
        *("high_performance", "high_performance_for_all", "high_precision", "high_precision_for_all"),
        default="high_performance",
    ),
    Flag(name="optypelist_for_implmode", source=_CHECKS),
    _truth("allow_hf32", a2=None, never="8.5.0 calls it reserved, not supported"),
    Flag(name="op_bank_path", kind="directory", source="ATC manual 9.2 (atc.md §9)"),
)

_CACHE = (
    _choice("op_compiler_cache_mode", "enable", "disable", "force", default="disable"),
    Flag(name="op_compiler_cache_dir", kind="directory", source=_PAGES),
)

_DEBUG = (
    _choice("log", "debug", "info", "warning", "error", "null", default="null", code="E10010"),
    _choice("op_debug_level", "0", "1", "2", "3", "4", default="0"),
    Flag(name="op_debug_config", kind="input", source=_PAGES),
    Flag(name="debug_dir", kind="directory", source=_PAGES),
    _bit("status_check", a2=False, never="the overflow check in kernels is not supported on Atlas A2"),
    _bit("dump_mode"),
    _bit("display_model_info"),
    _truth("save_original_model", a2=None),
    _choice("export_compile_stat", "0", "1", "2", default="1"),
    _bit("deterministic"),
    _bit("atomic_clean_policy"),
    _bit("is_weight_clip", "1", code="E10001"),
    _choice(
        "shape_generalized_build_mode",
        *("shape_generalized", "shape_precise"),
        default="shape_precise",
        never="it is deprecated",
    ),
)

FLAGS: Mapping[str, Flag] = {flag.name: flag for flag in (*_BASIC, *_FEATURES, *_TUNING, *_PRECISION, *_CACHE, *_DEBUG)}
"""Name without dashes → flag."""

NEWER: Mapping[str, str] = {
    "optimization_switch": "a later release",
    "jit_compile": "a later release; 8.5 always compiles as with 1",
    "static_model_ops_lower_limit": "a later release",
    "multi_stream_parallel_mode": "a later release",
    "raw_ge_options": "a later release",
    "raw_ge_options_ignore_unsupported": "a later release",
    "h2d_overlapped_with_compute": "a later release",
    "hccl_sub_comm_config": "a later release",
    "enable_attr_compression": "a later release",
    "deterministic_level": "maintenance releases of 8.5 after 8.5.0",
}
"""Flags that ATC 8.5.0 calls unknown, and where they come from (main_impl.cc against the development branch)."""

SOC_VERSIONS: Mapping[str, tuple[int, int]] = {
    "Ascend910B1": (24, 48),
    "Ascend910B2": (24, 48),
    "Ascend910B2C": (24, 48),
    "Ascend910B3": (20, 40),
    "Ascend910B4": (20, 40),
    "Ascend910B4-1": (20, 40),
}
"""Chips of the 910B family, with cube and vector cores (platform_config/Ascend910B*.ini of runtime v8.5.0)."""
