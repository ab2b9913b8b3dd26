"""The files that flags of ATC name: fusion switches, mixed-precision lists, kernel modes, and types to keep or force.

Refused here is what no file can say, and what ATC would skip or misread in silence; what it refuses itself, it is asked
(`atc.failure` names the setting). Formats: ge v8.5.0, the parsers named below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workbench.values.errors import ConfigError, nearest


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

_LISTS = ("black-list", "white-list", "gray-list")
_CHANGES = ("to-add", "to-remove")


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
    """The JSON of --modify_mixlist from entries such as `black-list.to-add:SoftmaxV2`.

    Which changes of one type exclude each other, ATC says (E20003).
    """
    lists: dict[str, dict[str, list[str]]] = {}
    for entry in entries:
        place, _, operator = entry.partition(":")
        kind, _, change = place.partition(".")
        if kind not in _LISTS or change not in _CHANGES or not re.fullmatch(r"[A-Za-z]\w*", operator):
            raise _malformed(
                "modify_mixlist", entry, "E21002", "Write such as black-list.to-add:SoftmaxV2, with Ascend's own types."
            )
        lists.setdefault(kind, {}).setdefault(change, []).append(operator)
    return _json({kind: {c: sorted(set(ops)) for c, ops in sorted(lists[kind].items())} for kind in sorted(lists)})


def op_precision(entries: Iterable[str]) -> str:
    """The ini of --op_precision_mode; lines without a section are by operator type (op_impl_mode_config_parser.cc)."""
    modes: dict[str, str] = {}
    for entry in entries:
        operator, equals, mode = (part.strip() for part in entry.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z]\w*", operator):
            raise _malformed("op_precision_mode", entry, "", "Write such as Gelu=high_performance.")
        if mode not in PRECISION_KINDS:
            raise _malformed("op_precision_mode", entry, "", f"ATC would skip it. {nearest(mode, PRECISION_KINDS)}")
        if modes.setdefault(operator, mode) != mode:
            raise _malformed("op_precision_mode", entry, "", f"{operator} has {modes[operator]} already.")
    return "".join(f"{operator}={mode}\n" for operator, mode in modes.items())


def keep_dtype(entries: Iterable[str]) -> str:
    """The text of --keep_dtype: names of nodes, or `OpType::TypeName` (keep_dtype_option.cc)."""
    lines = list(entries)
    for entry in lines:
        if entry != entry.strip() or not entry or "\n" in entry:
            raise _malformed("keep_dtype", entry, "", "Write one name, without blanks around it.")
        if entry.startswith("OpType::") and not re.fullmatch(r"OpType::[A-Z][A-Za-z0-9]*", entry):
            raise _malformed("keep_dtype", entry, "E10003", "Types are Ascend's, such as OpType::LayerNorm.")
    return "".join(f"{entry}\n" for entry in dict.fromkeys(lines))


def customize_dtypes(entries: Iterable[str]) -> str:
    """The text of --customize_dtypes (op_cust_dtypes_config_parser.cc).

    Lines are `name::InputDtype:float16,,OutputDtype:float16` or `OpType::Type:InputDtype:…,OutputDtype:…`; an empty
    place leaves that tensor as it is. The first line of a name wins, so that a second one is refused here; a type that
    does not exist ATC refuses (E20003).
    """
    lines: dict[str, str] = {}
    for entry in entries:
        match = re.fullmatch(
            r"(?P<key>OpType::[A-Za-z]\w*(?=:)|[^:\n]+(?=::)):{1,2}InputDtype:(?P<inputs>[^:\n]*),OutputDtype:(?P<outputs>[^:\n]*)",
            entry,
        )
        if match is None:
            raise _malformed(
                "customize_dtypes", entry, "E20101", "Write such as OpType::Gelu:InputDtype:float,OutputDtype:float."
            )
        if match["key"] in lines:
            raise _malformed("customize_dtypes", entry, "", f"{match['key']} has a line already, and the first wins.")
        lines[match["key"]] = entry
    return "".join(f"{entry}\n" for entry in lines.values())


def _malformed(key: str, entry: str, code: str, remedy: str) -> ConfigError:
    by_atc = f" (ATC: {code})" if code else ""
    return ConfigError(f"{entry!r} is no entry of --{key}{by_atc}.", key=f"compile.{key}", hint=remedy)


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2) + "\n"
