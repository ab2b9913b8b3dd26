"""What a compiled file is made of: ATC's JSON of an OM (--mode=1), counted.

Its form follows the graph engine's model proto [inferred]: `graph[].op[]`, each with `type`, `input_desc[].dtype`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.values.documents.json_reader import loads

_PRODUCT = re.compile(
    r"(?i)(weight)?(quant)?(batch)?matmul\w*|fullyconnection\w*|gemm\w*|(depthwise)?conv(olution|\dd\w*)?|deconvolution\w*"
)
_NO_KERNELS = frozenset({"Case", "Const", "Constant", "Data", "NetOutput", "PartitionedCall", "RefData"})
"""Boundary, constants and the choice of a gear: they are in the graph and launch nothing."""

_GEAR = re.compile(r"_ascend_mbatch_batch_(\d+)")
"""In the names of what belongs to one gear (atc.md §8, names in reports of failed kernels)."""

_INT8 = frozenset({"DT_INT8", "DT_UINT8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts:
    """Of one compiled file.

    Attributes:
        kernels: operator type of Ascend → count, boundary and constants left out.
        int8_ops: matrix products and convolutions whose inputs are INT8.
        float_matmuls_left: those whose inputs are not.
    """

    kernels: Mapping[str, int]
    int8_ops: int
    float_matmuls_left: int


def count_kernels(file: Path) -> KernelCounts:
    """Count a JSON that ATC wrote.

    Raises:
        OSError, ValueError: missing, or not of that form.
    """
    kernels: Counter[str] = Counter()
    int8 = products = 0
    for op in _operators(loads(file.read_text(encoding="utf-8", errors="replace"), once=False)):
        kind = op.get("type")
        if not isinstance(kind, str):
            raise ValueError(f"{file}: an operator has no type")
        if kind in _NO_KERNELS:
            continue
        kernels[kind] += 1
        if _PRODUCT.fullmatch(kind):
            products += 1
            int8 += _is_int8(op)
    if not kernels:
        raise ValueError(f"{file}: no operator in it")
    return KernelCounts(kernels=dict(sorted(kernels.items())), int8_ops=int8, float_matmuls_left=products - int8)


def _operators(data: Any) -> Iterator[Mapping[str, Any]]:
    """Every operator; of a file with gears those of one gear, the last, since the others repeat them [inferred]."""
    if not isinstance(data, dict) or not isinstance(data.get("graph"), list):
        raise ValueError("the JSON of a model has a list `graph`")
    graphs = [graph for graph in data["graph"] if isinstance(graph, dict)]
    ops = [op for graph in graphs for op in graph.get("op", ()) if isinstance(op, dict)]
    gears = [_GEAR.search(str(op.get("name", ""))) for op in ops]
    last = max((int(gear[1]) for gear in gears if gear), default=0)
    for op, gear in zip(ops, gears, strict=True):
        if gear is None or int(gear[1]) == last:
            yield op


def _is_int8(op: Mapping[str, Any]) -> bool:
    """Whether both factors are INT8; the first two inputs are they, the bias behind them is int32."""
    types = [desc.get("dtype") for desc in op.get("input_desc", ()) if isinstance(desc, dict)]
    return len(types) >= 2 and all(kind in _INT8 for kind in types[:2])
