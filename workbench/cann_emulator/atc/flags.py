"""Every flag of the emulated atc: default, accepted values, what rejects another value (atc.md §1, §2).

Values are text, as on the command line. Sources are api/atc/cmd_flag_info.cc:27-53 (values, codes) and main_impl.cc:
178-372 (defaults) of ge v8.5.0. A flag that came after 8.5.0 is unknown, as it is to an 8.5.0 `atc`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import AtcFailure, failure

FRAMEWORKS = "0(Caffe), 1(MindSpore), 3(TensorFlow) or 5(ONNX)"
_SWITCH = ("0", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag.

    Attributes:
        about: for the usage text and for the message about a missing argument.
        values: what is accepted while the command line is parsed; empty where anything is.
        code: of a rejected value.
        since: first version that knows it, where that is not 8.5.0 or before.
    """

    name: str
    about: str
    default: str = ""
    values: tuple[str, ...] = ()
    code: str = "E10001"
    since: tuple[int, ...] = ()


def _flags(*flags: Flag) -> dict[str, Flag]:
    return {flag.name: flag for flag in flags}


SECTIONS: Mapping[str, Mapping[str, Flag]] = {
    "General": _flags(
        Flag(
            name="mode",
            default="0",
            values=("0", "1", "3", "5", "6", "30"),
            about="0: model to OM; 1: model or OM to JSON; 3: pre-check only; 5: dumped graph text to JSON; "
            "6: show what an OM holds; 30: model for a nano device",
        ),
    ),
    "Input": _flags(
        Flag(name="model", about="file of the model"),
        Flag(name="weight", about="file of the weights, Caffe only"),
        Flag(name="om", about="OM or text file to convert to JSON or to show"),
        Flag(name="framework", default="-1", values=("0", "1", "3", "5"), code="E10007", about=FRAMEWORKS),
        Flag(name="input_format", about="layout of the inputs; ONNX: NCHW, NCDHW, ND"),
        Flag(name="input_shape", about='"name1:1,128;name2:1,128"; -1 or n1~n2 where a dimension is open'),
        Flag(name="input_hint_shape", about='"index1:[1,128];index2:[1,128]", typical shapes of open inputs'),
        Flag(name="input_shape_range", about='deprecated, use input_shape: "name1:[1~8,128];name2:[1~8,128]"'),
        Flag(name="dynamic_batch_size", about='"1,2,4": sizes for the -1 in front of the inputs'),
        Flag(name="dynamic_image_size", about='"height1,width1;height2,width2"'),
        Flag(name="dynamic_dims", about='"1,64;1,128": one value for each -1 of the inputs, in order'),
        Flag(name="singleop", about="JSON file of single operators; output is then a folder"),
    ),
    "Output": _flags(
        Flag(name="output", about="path of the OM without suffix"),
        Flag(name="output_type", about='FP32, FP16, UINT8 or INT8 for all outputs, or "node1:0:FP16;node2:1:FP32"'),
        Flag(name="check_report", default="check_result.json", about="file of the pre-check's findings"),
        Flag(name="json", about="JSON file to write"),
        Flag(name="host_env_os", about="operating system the OM is for"),
        Flag(name="host_env_cpu", about="CPU architecture the OM is for"),
    ),
    "Target": _flags(
        Flag(name="soc_version", about="chip, such as Ascend910B3"),
        Flag(name="virtual_type", default="0", values=_SWITCH, about="1: the OM may run on a slice of a device"),
        Flag(name="core_type", default="AiCore", values=("AiCore", "VectorCore"), about="AiCore or VectorCore"),
        Flag(name="aicore_num", about='"cube|vector", such as "20|40": cores the OM may use'),
        Flag(name="target", about="reserved"),
        Flag(name="device_id", default="0", about="reserved"),
        Flag(name="cal_conf", about="reserved"),
    ),
    "Feature": _flags(
        Flag(name="out_nodes", about='"node1:0;node2:1", or names of output tensors "o1;o2"'),
        Flag(name="input_fp16_nodes", about='"input1;input2": inputs that become FP16'),
        Flag(name="insert_op_conf", about="file with the AIPP operators to insert"),
        Flag(name="op_name_map", about="file that maps names of custom operators"),
        Flag(name="is_input_adjust_hw_layout", about='"true,false": which FP16 inputs are NC1HWC0'),
        Flag(name="is_output_adjust_hw_layout", about='"true,false": which FP16 outputs are NC1HWC0'),
        Flag(
            name="external_weight",
            default="0",
            values=_SWITCH,
            code="E10006",
            about="1: constants go to files beside the OM",
        ),
        Flag(name="cluster_config", about="file that describes the devices of communication operators"),
    ),
    "Model tuning": _flags(
        Flag(
            name="disable_reuse_memory",
            default="0",
            values=_SWITCH,
            code="E10006",
            about="1: device memory is not reused between operators",
        ),
        Flag(name="fusion_switch_file", about="file that switches fusion passes on and off"),
        Flag(name="enable_scope_fusion_passes", about='"Pass1,Pass2", TensorFlow only'),
        Flag(name="enable_single_stream", about="true: one stream only"),
        Flag(name="ac_parallel_enable", default="0", about="1: AI CPU beside AI Core, dynamic shapes"),
        Flag(name="tiling_schedule_optimize", default="0", about="1: tiling on the device, static shapes"),
        Flag(name="quant_dumpable", about="1: quantized operators stay apart so that they can be dumped"),
        Flag(name="enable_small_channel", default="0", about="1: convolutions with at most 4 input channels"),
        Flag(name="enable_compress_weight", default="false", about="true: weights are compressed"),
        Flag(name="compress_weight_conf", about="file with the operators whose weights are compressed"),
        Flag(name="compression_optimize_conf", about="file of the compression, such as a calibration"),
        Flag(name="sparsity", default="0", values=_SWITCH, code="E10006", about="1: 4:2 structured sparsity"),
        Flag(
            name="buffer_optimize",
            default="l2_optimize",
            values=("l1_optimize", "l2_optimize", "off_optimize"),
            about="l2_optimize, l1_optimize or off_optimize",
        ),
        Flag(name="mdl_bank_path", about="folder of the bank that subgraph tuning filled"),
        Flag(name="oo_level", default="O3", about="O1 or O3: level of graph optimization"),
        Flag(name="oo_constant_folding", default="true", about="false: constants are not folded"),
        Flag(name="oo_dead_code_elimination", default="true", about="false: dead branches stay"),
        Flag(name="topo_sorting_mode", about="0: breadth first; 1: depth first; 2: reversed depth first; 3: stable"),
        Flag(name="auto_tune_mode", about="withdrawn"),
    ),
    "Operator tuning": _flags(
        Flag(name="op_precision_mode", about="file with lines Operator=mode"),
        Flag(name="allow_hf32", about="reserved"),
        Flag(
            name="precision_mode",
            values=(
                "allow_fp32_to_bf16",
                "allow_fp32_to_fp16",
                "allow_mix_precision",
                "allow_mix_precision_bf16",
                "allow_mix_precision_fp16",
                "cube_fp16in_fp32out",
                "force_fp16",
                "force_fp32",
                "must_keep_origin_dtype",
            ),
            about="force_fp16 unless said otherwise, and eight more",
        ),
        Flag(
            name="precision_mode_v2",
            values=(
                "cube_fp16in_fp32out",
                "cube_hif8",
                "fp16",
                "mixed_bfloat16",
                "mixed_float16",
                "mixed_hif8",
                "origin",
            ),
            about="fp16 unless said otherwise, and six more",
        ),
        Flag(name="modify_mixlist", about="file that changes the lists of a mixed precision mode"),
        Flag(name="keep_dtype", about="file with the operators that keep the graph's type"),
        Flag(name="customize_dtypes", about="file with the types of single operators"),
        Flag(name="is_weight_clip", default="1", about="0: weights that overflow FP16 are not clipped"),
        Flag(name="op_bank_path", about="folder of the bank that operator tuning filled"),
        Flag(
            name="op_select_implmode",
            values=(
                "high_performance",
                "high_performance_for_all",
                "high_precision",
                "high_precision_for_all",
            ),
            about="high_performance, high_precision, or one of them for all operators",
        ),
        Flag(name="optypelist_for_implmode", about='"Gelu,Sigmoid": the types op_select_implmode is for'),
    ),
    "Debug": _flags(
        Flag(
            name="op_debug_level",
            default="0",
            values=("0", "1", "2", "3", "4"),
            about="0: nothing is kept of the operators' compilation; 1 to 4: what is kept",
        ),
        Flag(name="save_original_model", about="true: the model before optimization is written too"),
        Flag(
            name="log",
            default="null",
            values=("debug", "error", "info", "null", "warning"),
            code="E10010",
            about="debug, info, warning, error or null",
        ),
        Flag(name="dump_mode", default="0", values=_SWITCH, code="E10006", about="1: JSON with shapes, with mode 1"),
        Flag(name="debug_dir", about="folder of what op_debug_level keeps"),
        Flag(name="status_check", default="0", values=_SWITCH, code="E10006", about="1: operators check overflow"),
        Flag(name="op_compiler_cache_dir", about="folder of the cache of compiled operators"),
        Flag(
            name="op_compiler_cache_mode",
            default="disable",
            values=("disable", "enable", "force"),
            about="disable, enable or force",
        ),
        Flag(
            name="display_model_info",
            default="0",
            values=_SWITCH,
            code="E10006",
            about="1: what the OM holds is shown after the build",
        ),
        Flag(
            name="shape_generalized_build_mode",
            default="shape_precise",
            values=("shape_generalized", "shape_precise"),
            about="deprecated",
        ),
        Flag(name="op_debug_config", about="file with checks that operators are compiled with"),
        Flag(
            name="atomic_clean_policy",
            default="0",
            values=_SWITCH,
            code="E10006",
            about="0: memory of atomic operators is cleaned together; 1: one by one",
        ),
        Flag(name="deterministic", default="0", values=_SWITCH, code="E10006", about="1: repeats are bit-stable"),
        Flag(
            name="deterministic_level",
            default="0",
            values=("0", "1", "2"),
            about="0 to 2, with deterministic",
            since=(8, 5, 1),
        ),
        Flag(
            name="export_compile_stat",
            default="1",
            about="fusion_result.json: 0 never; 1 at the end; 2 after each graph",
        ),
    ),
}

FLAGS: Mapping[str, Flag] = {name: flag for section in SECTIONS.values() for name, flag in section.items()}
"""Name → flag, all versions; --help and --h are the grammar's own."""


def known_flags(version: tuple[int, ...]) -> Mapping[str, Flag]:
    """The flags that an `atc` of this version knows."""
    return {name: flag for name, flag in FLAGS.items() if version >= flag.since}


def value_of(options: Mapping[str, str], name: str) -> str:
    """The value given for a flag, or its default.

    The report's default lies in ASCEND_WORK_PATH where that is set, and a missing or empty input format is NCHW.
    """
    given = options.get(name)
    if given is not None and not (name == "input_format" and not given):
        return given
    if name == "input_format":
        return "NCHW"
    default = FLAGS[name].default
    folder = os.environ.get("ASCEND_WORK_PATH", "")
    return f"{folder}/{default}" if name == "check_report" and folder else default


def reject(flag: Flag, value: str) -> AtcFailure:
    """The failure of a value that the table does not have."""
    if flag.code == "E10007":
        return failure("E10007", parameter=flag.name, support=FRAMEWORKS)
    if flag.code == "E10010":
        return failure("E10010", loglevel=value)
    if flag.code == "E10006":
        return failure("E10006", parameter=flag.name, value=value)
    allowed = " ".join(f"[{accepted}]" for accepted in sorted(flag.values))
    return failure(
        flag.code, parameter=f"--{flag.name}", value=value, reason=f"it is none of the allowed values {allowed}"
    )
