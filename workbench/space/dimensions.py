"""Dimension: every setting a search space may name, with what it means, when it means something, and the source.

The values that exist at all are here; which of them a sweep tries is the user's space file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from workbench.values.ascend_settings import (
    ALL_PRECISION_MODES,
    ASCEND,
    FUSION_GROUPS,
    BufferOptimize,
    ImplementationMode,
    OptimizationLevel,
    Shapes,
)
from workbench.values.candidate import (
    ONNXRUNTIME_FUSIONS,
    Algorithm,
    Calibrator,
    FloatUnit,
    Granularity,
    GraphOptimization,
    PerformanceHint,
    Scheme,
    SensitivityMetric,
    WeightAlgorithm,
)
from workbench.values.dimension import Dimension

FUSION_PREFIX = "compile.fusions."
TARGET = "target"
CFG = "quantization.cfg"
OFF = "off"
BINS_BY_WORD = (
    "optimal N: at most N lengths, those with the least padding for the dataset's texts (optimal 1: its max_length "
    "alone); quantiles N: about equally many texts in each"
)


DIMENSIONS: Mapping[str, Dimension] = {
    "precision.mode": Dimension(
        about="number format of what is not quantized: fp32 on a CPU; on Ascend a value of --precision_mode, or of "
        "--precision_mode_v2 where only that has it (never both)",
        values=("fp32", *ALL_PRECISION_MODES),
        excludes="INT8 on Ascend: force_fp32, cube_fp16in_fp32out, must_keep_origin_dtype, origin and the bf16-or-fp32 "
        "mode; hif8 is refused",
        source="ge v8.5.0 api/atc/cmd_flag_info.cc; ATC manual, General Restrictions",
    ),
    "quantization.scheme": Dimension(
        about="none keeps float; dynamic computes activation scales at run time, one for a whole call, so that scores "
        "depend a little on what shares the batch; static takes them from calibration; cfg follows an AMCT "
        "configuration",
        values=get_args(Scheme),
    ),
    "quantization.algorithm": Dimension(
        about="how a clip range is derived from the observed histogram", values=get_args(Algorithm)
    ),
    "quantization.percentile": Dimension(about="share of activation values kept, in percent", kind=float),
    "quantization.activation_symmetric": Dimension(
        about="zero point fixed at 0 (true) or free (false)", values=(False, True), kind=bool
    ),
    "quantization.weight_granularity": Dimension(
        about="one weight scale per tensor, or one per output channel", values=get_args(Granularity)
    ),
    "quantization.weight_algorithm": Dimension(
        about="how a weight's scale is chosen; adaround learns the rounding too, and is slower",
        values=get_args(WeightAlgorithm),
    ),
    "quantization.attention_matmul": Dimension(
        about="quantize MatMuls of two activations too", values=(False, True), kind=bool
    ),
    "quantization.balance": Dimension(
        about="migration strength of activation balancing (SmoothQuant, DMQ), 0 to 1; auto searches it per layer",
        kind=float,
        words=("auto",),
        may_be_off=True,
    ),
    "quantization.bias_correction": Dimension(
        about="take the mean error of rounding back out of the biases", values=(False, True), kind=bool
    ),
    "quantization.keep_float": Dimension(about="how many of the most sensitive units stay in float", kind=int),
    "quantization.keep_float_unit": Dimension(
        about="what keep_float counts: single layers, or groups such as one block's attention QKV",
        values=get_args(FloatUnit),
    ),
    "quantization.sensitivity": Dimension(
        about="the figure by which layers are ranked for keep_float", values=get_args(SensitivityMetric)
    ),
    "quantization.calibrator": Dimension(
        about="who derives the scales: amct (the vendor's, in its own interpreter) or workbench; off takes AMCT where "
        "it is installed and knows the recipe, the workbench otherwise",
        values=get_args(Calibrator),
        targets=(ASCEND,),
        may_be_off=True,
        excludes="amct: algorithms other than ifmr, hfmg and cfg",
        source="AMCT manual, create_quant_config and its configuration file",
    ),
    CFG: Dimension(about="an AMCT simplified configuration (.cfg) or its JSON form, relative to the space file"),
    "compile.graph_optimization": Dimension(
        about="ONNX Runtime's optimization level; INT8 needs extended or all",
        values=get_args(GraphOptimization),
        targets=("onnxruntime",),
    ),
    "compile.performance_hint": Dimension(
        about="OpenVINO's preset for what is not set explicitly",
        values=get_args(PerformanceHint),
        targets=("openvino",),
    ),
    "compile.inference_precision": Dimension(
        about="OpenVINO's number format of what is not INT8", values=("f32", "bf16"), targets=("openvino",)
    ),
    "compile.batches": Dimension(
        about="batch sizes that are compiled; where it is not offered, serving.batch and every max_batch_size of the "
        "space's service",
        targets=(ASCEND,),
        listed="numbers",
        excludes="a serving.batch larger than all of them",
        source="ATC manual, --input_shape",
    ),
    "compile.sequence_bins": Dimension(
        about="padded lengths that are compiled, one file each; a text runs in the smallest that holds it. "
        + BINS_BY_WORD,
        targets=(ASCEND,),
        listed="numbers",
        lengths_in=16,  # the cube computes in blocks of 16
        source="ATC manual, --input_shape; ModelZoo-PyTorch BERT recipes compile one file for each length",
    ),
    "compile.shapes": Dimension(
        about="static: one file for each batch and bin; gears: one file for all of them (--dynamic_dims)",
        values=get_args(Shapes),
        targets=(ASCEND,),
        excludes="gears with INT8",
        source="ATC manual atctool_0040, General Restrictions; --dynamic_dims",
    ),
    "compile.op_select_implmode": Dimension(
        about="kernels of the types in optypelist_for_implmode (all of them without) in that mode",
        values=get_args(ImplementationMode),
        targets=(ASCEND,),
        may_be_off=True,
        excludes="op_precision_mode, which makes it void; high_precision with INT8",
        source="ATC manual, --op_select_implmode (to be dropped in favour of --op_precision_mode)",
    ),
    "compile.optypelist_for_implmode": Dimension(
        about="Ascend operator types that op_select_implmode is for, such as Gelu",
        targets=(ASCEND,),
        listed="texts",
        may_be_off=True,
        excludes="needs op_select_implmode (E10001)",
        source="ATC manual, --optypelist_for_implmode",
    ),
    "compile.op_precision_mode": Dimension(
        about="Type=mode of single operator types, such as Gelu=high_performance",
        targets=(ASCEND,),
        listed="texts",
        may_be_off=True,
        excludes="op_select_implmode; high_precision with INT8",
        source="ge v8.5.0 op_impl_mode_config_parser.cc; ModelZoo-PyTorch BERT recipes",
    ),
    "compile.modify_mixlist": Dimension(
        about="moves operator types between the lists of mixed precision: black-list.to-add:SoftmaxV2",
        targets=(ASCEND,),
        listed="texts",
        may_be_off=True,
        excludes="every precision.mode that is not mixed (E10001)",
        source="ge v8.5.0 modify_mixlist_config_parser.cc",
    ),
    "compile.keep_dtype": Dimension(
        about="nodes, or OpType::LayerNorm, that keep the model's own type, for layers that suffer in fp16",
        targets=(ASCEND,),
        listed="texts",
        may_be_off=True,
        excludes="must_keep_origin_dtype and origin, which keep every type",
        source="ge v8.5.0 attr_options/keep_dtype_option.cc",
    ),
    "compile.customize_dtypes": Dimension(
        about="types of single operators, as lines of that file; beats keep_dtype and precision.mode",
        targets=(ASCEND,),
        listed="texts",
        may_be_off=True,
        excludes="void for an operator that is fused away",
        source="ge v8.5.0 op_cust_dtypes_config_parser.cc",
    ),
    "compile.oo_level": Dimension(
        about="O3 is ATC's own; O1 closes every fusion that can be closed (a debug feature)",
        values=get_args(OptimizationLevel),
        targets=(ASCEND,),
        excludes="fusion groups with O1",
        source="ge v8.5.0 graph_metadef/graph/option/optimization_option.cc:19-22",
    ),
    "compile.oo_constant_folding": Dimension(
        about="compute what depends on constants only when compiling",
        values=(True, False),
        kind=bool,
        targets=(ASCEND,),
        source="ge v8.5.0 base/common/option_register.cc:47-61",
    ),
    "compile.buffer_optimize": Dimension(
        about="l2_optimize keeps data in the L2 buffer between kernels; off_optimize does not",
        values=get_args(BufferOptimize),
        targets=(ASCEND,),
        excludes="l1_optimize is not offered: it is void and equals off",
        source="option page BUFFER_OPTIMIZE of ge v8.5.0",
    ),
    "compile.tiling_schedule_optimize": Dimension(
        about="tile some operators (fused attention) on the device; static shapes only",
        values=(False, True),
        kind=bool,
        targets=(ASCEND,),
        source="ATC manual, --tiling_schedule_optimize",
    ),
    "compile.enable_single_stream": Dimension(
        about="one stream, one operator after the other",
        values=(False, True),
        kind=bool,
        targets=(ASCEND,),
        source="ATC manual, --enable_single_stream",
    ),
    "compile.enable_small_channel": Dimension(
        about="for convolutions with at most 4 input channels; means nothing for a text model",
        values=(False, True),
        kind=bool,
        targets=(ASCEND,),
        excludes="models without such a convolution",
        source="ATC manual, --enable_small_channel",
    ),
    **{
        FUSION_PREFIX + name: Dimension(
            about=f"{group.about} ({', '.join((*group.graph, *group.ub))})",
            values=("on", "off") if group.on else ("off", "on"),
            targets=(ASCEND,),
            excludes="oo_level O1",
            source="ATC manual, --fusion_switch_file; pass names from a 9.x development tree [inferred for 8.5.0]",
        )
        for name, group in FUSION_GROUPS.items()
    },
    "serving.streams": Dimension(
        about="OpenVINO's infer requests that share the threads", kind=int, targets=("openvino",), may_be_off=True
    ),
    "serving.intra_op_threads": Dimension(
        about="threads inside one operator", kind=int, targets=("onnxruntime", "openvino")
    ),
    "serving.sequence_bins": Dimension(
        about="padded lengths that texts are grouped by and padded to; where it is not offered, the bins of the "
        "dataset's manifest. " + BINS_BY_WORD,
        targets=("onnxruntime", "openvino"),
        listed="numbers",
        lengths_in=8,
    ),
    "serving.batch": Dimension(about="samples per call", kind=int),
    **{
        FUSION_PREFIX + name: Dimension(about=f"ONNX Runtime's {name}", values=("on", "off"), targets=("onnxruntime",))
        for name in ONNXRUNTIME_FUSIONS
    },
}
