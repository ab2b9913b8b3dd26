"""The files that flags of ATC name: fusion switches, mixed-precision lists, kernel modes, and types to keep or force.

Each is written only when the candidate says something that it holds. Formats: ge v8.5.0, the parsers named below.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.targets.ascend.atc.flags import BANK, CUSTOM_OPERATORS, FILES
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import CompileError, ConfigError, nearest

if TYPE_CHECKING:
    from workbench.targets.ascend.settings import AscendCompile


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

DTYPES = frozenset(
    {
        *("float", "float16", "bfloat16", "double", "bool", "complex64", "complex128", "string"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""Lower-case type names of the graph engine, as --customize_dtypes takes them [inferred: the types it has]."""

_LISTS = ("black-list", "white-list", "gray-list")
_CHANGES = ("to-add", "to-remove")

_COMBINATIONS = frozenset(
    frozenset(words.split(", "))
    for words in (
        "black-list.to-remove",
        "white-list.to-remove",
        "gray-list.to-add",
        "gray-list.to-add, black-list.to-remove",
        "gray-list.to-add, white-list.to-remove",
        "white-list.to-add",
        "white-list.to-add, gray-list.to-remove",
        "white-list.to-add, black-list.to-remove",
        "black-list.to-add",
        "black-list.to-add, gray-list.to-remove",
        "black-list.to-add, white-list.to-remove",
    )
)
"""What may be said about one operator type; everything else is E20003 (modify_mixlist_config_parser.cc)."""


def write_config_files(settings: AscendCompile, to: Path) -> dict[str, Path]:
    """Write the files that the settings need below `to`; returns flag → file.

    Raises:
        ConfigError: as `config_texts`, which `plan` and every candidate's check ask first.
    """
    written = {}
    for flag, (name, text) in config_texts(settings).items():
        written[flag] = to / name
        written[flag].write_text(text, encoding="utf-8")
    return written


def config_texts(settings: AscendCompile) -> dict[str, tuple[str, str]]:
    """Flag → (file name, content).

    Raises:
        ConfigError: an entry has not the form that ATC reads; the rule has its code.
    """
    found: dict[str, tuple[str, str]] = {}
    if settings.disabled_fusions or settings.enabled_fusions:
        found["fusion_switch_file"] = "fusion_switch.cfg", fusion_switch(settings)
    if settings.modify_mixlist:
        found["modify_mixlist"] = "mixlist.json", mixlist(settings.modify_mixlist)
    if settings.op_precision_mode:
        found["op_precision_mode"] = "op_precision.ini", op_precision(settings.op_precision_mode)
    if settings.keep_dtype:
        found["keep_dtype"] = "keep_dtype.cfg", keep_dtype(settings.keep_dtype)
    if settings.customize_dtypes:
        found["customize_dtypes"] = "customize_dtypes.cfg", customize_dtypes(settings.customize_dtypes)
    passed = dict(settings.options)
    return found | {flag: (f"{flag}.cfg", passed[flag]) for flag in FILES if flag in passed}


def fusion_switch(settings: AscendCompile) -> str:
    """The fusion switch file, as JSON: the passes of the newer graph engine do not read the text form.

    Every pass is named: a name in the user's file comes before the built-in entries, and these before "ALL", so that
    "ALL" would leave passes with an entry of their own as they are (fusion_config_parser.cc:92-230).
    """
    switch: dict[str, dict[str, str]] = {"GraphFusion": {}, "UBFusion": {}}
    for groups, state in ((settings.disabled_fusions, "off"), (settings.enabled_fusions, "on")):
        for group in groups:
            switch["GraphFusion"] |= dict.fromkeys(FUSION_GROUPS[group].graph, state)
            switch["UBFusion"] |= dict.fromkeys(FUSION_GROUPS[group].ub, state)
    return _json({"Switch": {kind: passes for kind, passes in switch.items() if passes}})


def mixlist(entries: Iterable[str]) -> str:
    """The JSON of --modify_mixlist from entries such as `black-list.to-add:SoftmaxV2`."""
    lists: dict[str, dict[str, list[str]]] = {}
    said: dict[str, set[str]] = {}
    for entry in entries:
        place, _, operator = entry.partition(":")
        kind, _, change = place.partition(".")
        if kind not in _LISTS or change not in _CHANGES or not re.fullmatch(r"[A-Za-z]\w*", operator):
            raise _malformed(
                "modify_mixlist", entry, "E21002", "Write such as black-list.to-add:SoftmaxV2, with Ascend's own types."
            )
        lists.setdefault(kind, {}).setdefault(change, []).append(operator)
        said.setdefault(operator, set()).add(place)
    for operator, places in said.items():
        if frozenset(places) not in _COMBINATIONS:
            raise ConfigError(
                f"{operator} is in {' and '.join(sorted(places))}, which contradict each other or move nothing "
                "(ATC: E20003).",
                key="compile.modify_mixlist",
                hint="Put it where it shall be, and remove it where it is.",
            )
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
    place leaves that tensor as it is. The first line of a name wins, so that a second one is refused here.
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
        types = [name for name in (*match["inputs"].split(","), *match["outputs"].split(",")) if name]
        unknown = next((name for name in types if name not in DTYPES), None)
        if unknown is not None:
            raise _malformed("customize_dtypes", entry, "E20003", nearest(unknown, DTYPES))
        if match["key"] in lines:
            raise _malformed("customize_dtypes", entry, "", f"{match['key']} has a line already, and the first wins.")
        lines[match["key"]] = entry
    return "".join(f"{entry}\n" for entry in lines.values())


def _malformed(key: str, entry: str, code: str, remedy: str) -> ConfigError:
    by_atc = f" (ATC: {code})" if code else ""
    return ConfigError(f"{entry!r} is no entry of --{key}{by_atc}.", key=f"compile.{key}", hint=remedy)


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2) + "\n"


# --- folders: custom operators and an operator bank, each still what the space named --------------------------------


VARIABLE = "ASCEND_CUSTOM_OPP_PATH"


def operators_environment(settings: AscendCompile) -> dict[str, str]:
    """The variable that ATC looks for custom operators in; nothing where the candidate names none.

    Raises:
        CompileError: the folder is gone, or holds something else than when the space was read.
    """
    folder = _named(settings, CUSTOM_OPERATORS)
    return {} if folder is None else {VARIABLE: str(folder)}


def copied_bank(settings: AscendCompile, to: Path) -> dict[str, Path]:
    """Flag → a copy of the operator bank below `to`, so that nothing changes it while ATC reads, and that its own path
    is not in the OM; nothing where the candidate names none.

    Raises:
        CompileError: as `operators_environment`.
    """
    folder = _named(settings, BANK)
    return {} if folder is None else {BANK: _named(settings, BANK, shutil.copytree(folder, to / BANK)) or folder}


def _named(settings: AscendCompile, option: str, copy: Path | None = None) -> Path | None:
    """The folder, or its copy, once it holds what was named."""
    named = dict(settings.options).get(option)
    if named is None:
        return None
    path, _, wanted = named.rpartition("@")
    try:
        found = folder_digest(copy or Path(path))
    except ConfigError as error:
        raise CompileError(f"compile.{option}: {error}") from error
    if found != wanted:
        raise CompileError(
            f"compile.{option}: {path} holds something else (sha256 {found[:12]}) than when the space was "
            f"read ({wanted[:12]}). Put it back, or begin a new sweep with --fresh."
        )
    return copy or Path(path)
