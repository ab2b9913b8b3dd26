"""ONNX operator → Ascend operator, what executes it, and for which opsets ATC has a plugin, as `operators.json` has it.

Names are those of the operator library as the plugins of ops-nn and its sisters give them; where several kernels may
answer, the one for static shapes is named ([inferred] for those of the closed packages).

Plugins are registered as `domain::opset::Type` and looked up with the opset of the file (atc.md §8). ops-nn 8.5.0 and
its sister packages register opsets 8 to 18, many operators from 11 on only, a few up to 22. The lists are those of the
open packages by name of operator, by the first opset; which opsets each of the closed ones has is [inferred]. Among
them are operators that exports of ModelZoo and torch_npu put into the default domain. Loop and Scan are in no package
and no manual: the parser knows the subgraphs of If alone (ge v8.5.0 parser/parser/onnx/subgraph_adapter).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.cann_emulator.om import Core


def words(text: str) -> frozenset[str]:
    """The words of a text: a long list of names."""
    return frozenset(text.split())


OPERATORS: Mapping[str, Any] = json.loads(Path(__file__).with_name("operators.json").read_text(encoding="utf-8"))

VIEWS = words(OPERATORS["views"])
"""Of no cost: their result is the same memory under another shape."""
ELEMENTWISE = words(OPERATORS["elementwise"])
"""Types that the on-chip buffer passes call element-wise; Cast is a case of its own."""
_CUBE, _AICPU = words(OPERATORS["cube"]), words(OPERATORS["aicpu"])
_PLUGINS = {int(first): words(kinds) for first, kinds in OPERATORS["plugins"].items()}
_QUANTIZED = words(OPERATORS["quantized"])
_OLDEST, _NEWEST, _ASCEND_NEWEST = 8, 18, 22
_AT_11_TOO = ("GridSample", "GridSampleV2")
"""Exports of opset 11 that write these, as MMCV's do."""


def ascend_type(onnx_type: str) -> str:
    """The Ascend type of an ONNX operator, MatMul by rank aside."""
    return str(OPERATORS["renamed"].get(onnx_type, onnx_type))


def core_of(onnx_type: str) -> Core:
    if onnx_type in VIEWS:
        return "none"
    if onnx_type in _CUBE:
        return "cube"
    return "aicpu" if onnx_type in _AICPU else "vector"


def is_registered(domain: str, opset: int, op_type: str) -> bool:
    """Whether a plugin answers to `domain::opset::op_type`; '' is ai.onnx. torch_npu also exports `npu::1::NPU…`."""
    if domain == "npu":
        return opset == 1 and op_type.startswith("NPU") and op_type in _PLUGINS[11]
    if domain not in ("", "ai.onnx"):
        return False
    if op_type in _QUANTIZED:
        return _OLDEST <= opset <= _ASCEND_NEWEST  # amct.md §6.1
    known = any(first <= opset and op_type in kinds for first, kinds in _PLUGINS.items())
    return _OLDEST <= opset <= _NEWEST and (known or (op_type in _AT_11_TOO and opset == 11))
