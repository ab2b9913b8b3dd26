"""The files that flags of ATC name: fusion switches, mixed-precision lists, kernel modes, and types to keep or force.

What ATC refuses of them it says itself (`atc.atc` names the setting). Formats: ge v8.5.0, the parsers named below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """Fusion passes that are switched together.

    Attributes:
        graph, ub: names of graph passes and of UB (on-chip buffer) passes, as in a fusion switch file.
        on: what the group is when nothing is said.
    """

    about: str
    graph: tuple[str, ...] = ()
    ub: tuple[str, ...] = ()
    on: bool = True


FUSION_GROUPS: Mapping[str, FusionGroup] = {
    "layer_norm": FusionGroup(
        about="small operators become one LayerNorm",
        graph=("LayerNormFusionPass", "LayerNormInferenceFusionPass", "LayerNormONNXFusionPass"),
    ),
    "add_layer_norm": FusionGroup(
        about="the residual Add joins its LayerNorm",
        graph=("AddLayerNormFusionPass",),
        ub=("AddLayernormV3FusionPass",),
    ),
    "gelu": FusionGroup(about="small operators become one Gelu (static shapes only)", graph=("GeluFusionPass",)),
    "softmax": FusionGroup(about="small operators become one Softmax", graph=("SoftmaxFusionPass",)),
    "matmul_bias": FusionGroup(about="the bias Add joins its MatMul", graph=("MatMulBiasAddFusionPass",)),
    "matmul_v3": FusionGroup(
        about="MatMul and BatchMatMul become their third kernel version",
        graph=("BatchMatMulToBatchMatmulV3FusionPass", "MatMulToMatmulV3FusionPass"),
    ),
    "matmul_elementwise": FusionGroup(
        about="element-wise work behind a MatMul is done before its result leaves the chip",
        ub=("ATbeMatmulElemwiseFusionPass", "TbeBatchMatmulFusedMulAddFusionPass"),
    ),
    "matmul_transpose": FusionGroup(
        about="transposes around a MatMul are done by its own reading and writing",
        graph=("BatchMatMulTransposeFusionPass",),
        ub=("BatchMatmulConfusiontransposeUbFusion", "MatmulConfusiontransposeUbFusion"),
    ),
    "layout": FusionGroup(
        about="neighbouring Transpose and Reshape become one",
        graph=("ReshapeTransposeFusionPass", "TransposeReshapeFusionPass"),
    ),
    "elementwise": FusionGroup(
        about="chains of element-wise operators become one kernel",
        ub=("TbeEltwiseCastFusionPass", "TbeEltwiseFusionPass", "TbeMultiOutputFusionPass"),
    ),
    "dequant_elementwise": FusionGroup(
        about="INT8: AscendDequant and what follows it join their MatMul",
        graph=("BatchMatMulDequantElemwiseFusionPass",),
        ub=(
            "BatchMatmulV2DequantMulAddFusionPass",
            "TbeFullyconnectionElemwiseDequantFusionPass",
            "TbeMatmulDequantFusionPass",
        ),
    ),
    "quant_elementwise": FusionGroup(
        about="INT8: AscendQuant joins the element-wise operator before it",
        ub=("TbeElemwiseQuantFusionPass", "TbeEltwiseQuantFusionPass"),
    ),
    "softmax_small": FusionGroup(
        about="off unless named: Softmax of small rows as one kernel", graph=("SoftmaxSmallOpFusionPass",), on=False
    ),
    "matmul_reshape": FusionGroup(
        about="off unless named: Reshape joins its MatMul", graph=("MatmulReshapeFusionPass",), on=False
    ),
}
"""Group → its passes, all of which can be closed: none is in the fixed list of ge v8.5.0 (inc/common/
fusion_pass_util.h:18-115) or in the manual's wider list of risky ones (atlasag_25_0078). The names are those of a 9.x
development tree; that 8.5.0 has each of them is [inferred] until a machine's fusion_result.json shows it."""

PRECISION_KINDS = (
    "high_precision",
    "high_performance",
    "support_out_of_bound_index",
    "keep_fp16",
    "super_performance",
    "enable_float_32_execution",
    "norm_class",
)
"""Modes of the file of --op_precision_mode; others are skipped with a line in the log only. The eighth,
enable_hi_float_32_execution, is documented as unsupported (op_impl_mode_config_parser.cc; manual 9.2)."""


def fusion_switch(disabled: Iterable[str], enabled: Iterable[str]) -> str:
    """The fusion switch file, as JSON: the passes of the newer graph engine do not read the text form.

    Every pass is named: a name in the user's file comes before the built-in entries, and these before "ALL", so that
    "ALL" would leave passes with an entry of their own as they are (fusion_config_parser.cc:92-230).
    """
    switch: dict[str, dict[str, str]] = {"GraphFusion": {}, "UBFusion": {}}
    for groups, state in ((disabled, "off"), (enabled, "on")):
        for group in groups:
            switch["GraphFusion"] |= dict.fromkeys(FUSION_GROUPS[group].graph, state)
            switch["UBFusion"] |= dict.fromkeys(FUSION_GROUPS[group].ub, state)
    return _json({"Switch": {kind: passes for kind, passes in switch.items() if passes}})


def mixlist(entries: Iterable[str]) -> str:
    """The JSON of --modify_mixlist from entries such as `black-list.to-add:SoftmaxV2`."""
    lists: dict[str, dict[str, list[str]]] = {}
    for entry in entries:
        place, _, operator = entry.partition(":")
        kind, _, change = place.partition(".")
        lists.setdefault(kind, {}).setdefault(change, []).append(operator)
    return _json({kind: {c: sorted(set(ops)) for c, ops in sorted(lists[kind].items())} for kind in sorted(lists)})


def text_lines(entries: Iterable[str]) -> str:
    """A file of one entry a line: of --op_precision_mode (lines without a section are by operator type,
    op_impl_mode_config_parser.cc), --keep_dtype (keep_dtype_option.cc) and --customize_dtypes
    (op_cust_dtypes_config_parser.cc)."""
    return "".join(f"{entry}\n" for entry in dict.fromkeys(entries))


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2) + "\n"
