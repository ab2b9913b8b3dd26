"""What a space may say about Ascend 910B3: what each setting means, what excludes it, and where the vendor says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.targets.ascend.flags import PASSED
from workbench.targets.ascend.settings import (
    ALL_PRECISION_MODES,
    CALIBRATORS,
    BufferOptimize,
    ImplementationMode,
    OptimizationLevel,
    Shapes,
)
from workbench.values.dimension import BINS_BY_WORD, FUSION_PREFIX, Dimension

DIMENSIONS: Mapping[str, Dimension] = {
    "precision.mode": Dimension(
        about="number format of what is not quantized: a value of --precision_mode, or of --precision_mode_v2 where "
        "only that has it (never both)",
        values=ALL_PRECISION_MODES,
        excludes="INT8: force_fp32, cube_fp16in_fp32out, must_keep_origin_dtype, origin and the bf16-or-fp32 mode; "
        "hif8 is refused",
        source="ge v8.5.0 api/atc/cmd_flag_info.cc; ATC manual, General Restrictions",
    ),
    "quantization.calibrator": Dimension(
        about="who calibrates an AMCT configuration: amct (the vendor's, in its own interpreter) or workbench; off "
        "takes AMCT where it is installed, the workbench otherwise",
        values=CALIBRATORS,
        may_be_off=True,
        excludes="amct: schemes other than cfg, and ada_quantize in it",
        source="AMCT manual, create_quant_config and its configuration file",
    ),
    "compile.batches": Dimension(
        about="batch sizes that are compiled; where it is not offered, serving.batch and every max_batch_size of the "
        "space's service",
        listed="numbers",
        excludes="a serving.batch larger than all of them",
        source="ATC manual, --input_shape",
    ),
    "compile.sequence_bins": Dimension(
        about="padded lengths that are compiled, one file each; a text runs in the smallest that holds it. "
        + BINS_BY_WORD,
        listed="numbers",
        lengths_in=16,  # the cube computes in blocks of 16
        source="ATC manual, --input_shape; ModelZoo-PyTorch BERT recipes compile one file for each length",
    ),
    "compile.shapes": Dimension(
        about="static: one file for each batch and bin; gears: one file for all of them (--dynamic_dims)",
        values=get_args(Shapes),
        excludes="gears with INT8",
        source="ATC manual atctool_0040, General Restrictions; --dynamic_dims",
    ),
    "compile.op_select_implmode": Dimension(
        about="kernels of the types in optypelist_for_implmode (all of them without) in that mode",
        values=get_args(ImplementationMode),
        may_be_off=True,
        excludes="op_precision_mode, which makes it void; high_precision with INT8",
        source="ATC manual, --op_select_implmode (to be dropped in favour of --op_precision_mode)",
    ),
    "compile.optypelist_for_implmode": Dimension(
        about="Ascend operator types that op_select_implmode is for, such as Gelu",
        listed="texts",
        may_be_off=True,
        excludes="needs op_select_implmode (E10001)",
        source="ATC manual, --optypelist_for_implmode",
    ),
    "compile.op_precision_mode": Dimension(
        about="Type=mode of single operator types, such as Gelu=high_performance",
        listed="texts",
        may_be_off=True,
        excludes="op_select_implmode; high_precision with INT8",
        source="ge v8.5.0 op_impl_mode_config_parser.cc; ModelZoo-PyTorch BERT recipes",
    ),
    "compile.modify_mixlist": Dimension(
        about="moves operator types between the lists of mixed precision: black-list.to-add:SoftmaxV2",
        listed="texts",
        may_be_off=True,
        excludes="every precision.mode that is not mixed (E10001)",
        source="ge v8.5.0 modify_mixlist_config_parser.cc",
    ),
    "compile.keep_dtype": Dimension(
        about="nodes, or OpType::LayerNorm, that keep the model's own type, for layers that suffer in fp16",
        listed="texts",
        may_be_off=True,
        excludes="must_keep_origin_dtype and origin, which keep every type",
        source="ge v8.5.0 attr_options/keep_dtype_option.cc",
    ),
    "compile.customize_dtypes": Dimension(
        about="types of single operators, as lines of that file; beats keep_dtype and precision.mode",
        listed="texts",
        may_be_off=True,
        excludes="void for an operator that is fused away",
        source="ge v8.5.0 op_cust_dtypes_config_parser.cc",
    ),
    "compile.oo_level": Dimension(
        about="O3 is ATC's own; O1 closes every fusion that can be closed (a debug feature)",
        values=get_args(OptimizationLevel),
        excludes="fusion groups with O1",
        source="ge v8.5.0 graph_metadef/graph/option/optimization_option.cc:19-22",
    ),
    "compile.oo_constant_folding": Dimension(
        about="compute what depends on constants only when compiling",
        values=(True, False),
        kind=bool,
        source="ge v8.5.0 base/common/option_register.cc:47-61",
    ),
    "compile.buffer_optimize": Dimension(
        about="l2_optimize keeps data in the L2 buffer between kernels; off_optimize does not",
        values=get_args(BufferOptimize),
        excludes="l1_optimize is not offered: it is void and equals off",
        source="option page BUFFER_OPTIMIZE of ge v8.5.0",
    ),
    "compile.tiling_schedule_optimize": Dimension(
        about="tile some operators (fused attention) on the device; static shapes only",
        values=(False, True),
        kind=bool,
        source="ATC manual, --tiling_schedule_optimize",
    ),
    "compile.enable_single_stream": Dimension(
        about="one stream, one operator after the other",
        values=(False, True),
        kind=bool,
        source="ATC manual, --enable_single_stream",
    ),
    "compile.enable_small_channel": Dimension(
        about="for convolutions with at most 4 input channels; means nothing for a text model",
        values=(False, True),
        kind=bool,
        excludes="models without such a convolution",
        source="ATC manual, --enable_small_channel",
    ),
    **PASSED,
    **{
        FUSION_PREFIX + name: Dimension(
            about=f"{group.about} ({', '.join((*group.graph, *group.ub))})",
            values=("on", "off") if group.on else ("off", "on"),
            excludes="oo_level O1",
            source="ATC manual, --fusion_switch_file; pass names from a 9.x development tree [inferred for 8.5.0]",
        )
        for name, group in FUSION_GROUPS.items()
    },
}
