"""Which fusion passes run: the switch file's two formats, and what comes before it (atc.md §4.1, §4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.operator_types import words
from workbench.values.documents.json_reader import loads

Group = Literal["GraphFusion", "UBFusion"]

_GROUPS: tuple[Group, ...] = ("GraphFusion", "UBFusion")
_TOP_KEYS = frozenset({"Switch", "Priority", "ExceptionalPassOfO1Level"})
_WORDS = {"on": True, "off": False}

ALWAYS_ON_AT_O1 = words("""
    LayerNormV4FusionPass WeightQuantBatchMatmulV2TransposeFusionPass SxpyFusionPass ARefreshCubeC0FusionPass
    DeleteNoConstFolding ZConcatExt2FusionPass MapIndexFusionPass
    """)
"""ExceptionalPassOfO1Level of the built-in file: a 9.x snapshot (atc.md §4.3), as the two tables below."""

BUILT_IN: Mapping[Group, Mapping[str, bool]] = {
    "GraphFusion": {
        **dict.fromkeys(
            words("""
            SoftmaxSmallOpFusionPass MatmulWeightPrefetchFusionPass WeightQuantBmmV2WeightPrefetchFusionPass
            MatmulReshapeFusionPass MatmulNzInNdOutTransdataFusionPass ReduceMeanDTransnodeFusionPass
            MulFusionOptimizeFusionPass ZConcatExt3FusionPass GatherV2ConcatV2FusionPass SubMulConcatFusionPass
            StridedSliceConcatFusionPass
            """),
            False,
        ),
        **dict.fromkeys(
            words("""
            LayerNormGradV3FusionPass GridSampler3DFusionPass FusedInferAttentionScoreQuantFusionPass
            IncreFlashAttentionQuantFusionPass PromptFlashAttentionQuantFusionPass
            """),
            True,
        ),
    },
    "UBFusion": {
        **dict.fromkeys(
            words("""
            AutoSingleNormFusionPass AutoSingleReduceFusionPass MatmulToMatMulV3UBFusionPass
            TbeConvDequantSigmoidMulAddFusionPass
            """),
            False,
        ),
        "TbeMatmulFixPipeFusionPass": True,
    },
}

FORBIDDEN_TO_CLOSE = words("""
    MatmulV2QuantProcessFusionPass BatchMatmulV2QuantProcessFusionPass FCQuantProcessFusionPass
    V100NotRequantFusionPass V200NotRequantFusionPass EinsumPass ConstToAttrPass ConstToAttrGatherV2Fusion
    ConstToAttrReduceSumFusion AReduceMeanFusionPass AReduceSumFusionPass PackFusionPass UnpackFusionPass
    ZSplitVFusionPass AddNFusionPass TransdataCastFusionPass TransposedUpdateFusionPass PermuteFusionPass COPYPass
    ArgMaxWithFusionPass NormalizeFusionPass HostBNFusionPass ApplyAddOutputPass TfTagNoConstFoldingFusionPass
    TfMergeSubFusionPass TbeConvDequantS16FusionPass TbeConvRequantFusionPass TbeConvCommonRules0FusionPass
    TbeConvCommonRules2FusionPass TbeAntiquantMaxpoolingFusionPass
    """)
"""Those that can occur in an encoder, of ge v8.5.0 inc/common/fusion_pass_util.h:18-115 (atc.md §4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The state of every pass.

    Attributes:
        chosen: group → pass or "ALL" → on; the user's file.
        exceptional: passes that stay on at O1, the user's among them.
    """

    chosen: Mapping[Group, Mapping[str, bool]] = field(default_factory=dict)
    exceptional: frozenset[str] = ALWAYS_ON_AT_O1
    oo_level: str = "O3"

    def is_on(self, name: str, group: Group) -> bool:
        """First hit wins, in the order of atc.md §4.2; the chip's white list is not public and left out."""
        if name in self.exceptional or name in FORBIDDEN_TO_CLOSE:
            return True
        if self.oo_level == "O1":
            return False
        chosen = self.chosen.get(group, {})
        if name in chosen:
            return chosen[name]
        if name in BUILT_IN[group]:
            return BUILT_IN[group][name]
        return chosen.get("ALL", True)


def read_switches(path: str, oo_level: str) -> Switches:
    """The switches of a file, "" for none. Names that no pass has are taken without a word.

    Raises:
        AtcFailure: E21001 (missing or empty), E21002 (JSON of another form), E20003 (text of another form).
    """
    if not path:
        return Switches(oo_level=oo_level)
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise failure("E21001", file_name=path) from error
    if not text:
        raise failure("E21001", file_name=path)
    try:
        content = loads(text, once=False)
    except ValueError:
        lines = _read_text(text, path)
        return Switches(chosen={group: lines for group in _GROUPS}, oo_level=oo_level)
    return _read_json(content, path, oo_level)


def _read_json(content: Any, path: str, oo_level: str) -> Switches:
    if not isinstance(content, dict):
        raise _malformed(path, "it is no JSON object")
    for key in content:
        if key not in _TOP_KEYS:
            raise _malformed(path, f"the key {key} is none of {', '.join(sorted(_TOP_KEYS))}")
    chosen: dict[Group, dict[str, bool]] = {}
    switch = content.get("Switch", {})
    if not isinstance(switch, dict):
        raise _malformed(path, "Switch is no object")
    for group, entries in switch.items():
        if group not in _GROUPS:
            raise _malformed(path, f"the key {group} of Switch is none of {', '.join(_GROUPS)}")
        if not isinstance(entries, dict):
            raise _malformed(path, f"{group} is no object")
        chosen[group] = {name: _word(value, name, path) for name, value in entries.items()}
    _check_priorities(content.get("Priority", {}), path)
    exceptional = content.get("ExceptionalPassOfO1Level", [])
    if not isinstance(exceptional, list) or not all(isinstance(name, str) for name in exceptional):
        raise _malformed(path, "ExceptionalPassOfO1Level is no list of names")
    return Switches(chosen=chosen, exceptional=ALWAYS_ON_AT_O1.union(exceptional), oo_level=oo_level)


def _word(value: Any, name: str, path: str) -> bool:
    if not isinstance(value, str) or value not in _WORDS:
        raise _malformed(path, f"the value {value} of {name} is neither on nor off")
    return _WORDS[value]


def _check_priorities(priorities: Any, path: str) -> None:
    """Read and checked only: the order of passes is the emulator's own."""
    if not isinstance(priorities, dict):
        raise _malformed(path, "Priority is no object")
    for group, levels in priorities.items():
        if group not in _GROUPS or not isinstance(levels, dict):
            raise _malformed(path, f"the key {group} of Priority is none of {', '.join(_GROUPS)}, or no object")
        for level, numbers in levels.items():
            if level not in ("Top", "Main", "Down") or not isinstance(numbers, dict):
                raise _malformed(path, f"the key {level} of {group} is none of Top, Main, Down, or no object")
            if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers.values()):
                raise _malformed(path, f"a priority of {group}.{level} is no number")


def _read_text(text: str, path: str) -> dict[str, bool]:
    states: dict[str, bool] = {}
    for line in text.splitlines():
        if not line:
            continue
        name, colon, word = (part.strip() for part in line.partition(":"))
        if not colon:
            raise _bad_item(line, path, "a line is PassName:on or PassName:off")
        if word not in _WORDS:
            raise _bad_item(line, path, f"the value of {name} is neither on nor off")
        if name in states:
            raise _bad_item(line, path, f"{name} stands there twice")
        states[name] = _WORDS[word]
    return states


def _malformed(path: str, reason: str) -> AtcFailure:
    return failure("E21002", file_name=path, reason=reason)


def _bad_item(item: str, path: str, reason: str) -> AtcFailure:
    return failure("E20003", parameter=item, filepath=path, reason=reason)
