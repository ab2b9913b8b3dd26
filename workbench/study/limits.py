"""When two models count as the same: limits for what is compared, float forms strictly, INT8 by what it can keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from workbench.graph.nodes import all_graphs, all_nodes
from workbench.targets import descriptions

_INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4})
_INTEGER_OPERATORS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When two tensors count as the same. The defaults are the acceptance limits of a float path.

    Attributes:
        cosine: must be above.
        max_abs, mae: largest and mean |difference| must be below; None for any.
        error: |a - b| / |a| must be below; None for any.
        differing: share of elements of a tensor of whole numbers that may differ.
        about: what is compared, in words; empty where somebody has set the limits.
    """

    cosine: float = 0.999
    max_abs: float | None = 1e-3
    mae: float | None = 1e-4
    error: float | None = None
    differing: float = 0.0
    about: str = ""

    def met(self, cosine: float, max_abs: float, mae: float, error: float = 0.0) -> bool:
        return (
            cosine > self.cosine
            and (self.max_abs is None or max_abs < self.max_abs)
            and (self.mae is None or mae < self.mae)
            and (self.error is None or error < self.error)
        )

    def __str__(self) -> str:
        parts = [
            f"cosine > {self.cosine:g}",
            *([] if self.max_abs is None else [f"max abs < {self.max_abs:g}"]),
            *([] if self.mae is None else [f"MAE < {self.mae:g}"]),
            *([] if self.error is None else [f"error < {self.error:.3g} of the signal"]),
        ]
        return f"{f'{self.about}: ' if self.about else ''}{', '.join(parts)}"


FLOAT = Limits(about="float against float")
HALF = Limits(about="16-bit against 32-bit float", cosine=0.999, max_abs=None, mae=None, error=0.02, differing=0.001)
"""float16 rounds to 2^-11; a graph of some hundred operators carries ten times that."""
INT8 = Limits(about="INT8 against float", cosine=0.99, max_abs=None, mae=None, error=0.15, differing=0.01)
"""INT8 keeps 16 dB where it is good for anything; how large the numbers are is unknown, so no absolute limit fits."""


def usual_limits(*files: Path) -> Limits:
    """The limits for these files, by the coarsest one's precision."""
    kinds = {_precision(file) for file in files}
    return INT8 if "int8" in kinds else HALF if "half" in kinds and kinds != {"half"} else FLOAT


def _precision(file: Path) -> str:
    proto = onnx.load(file, load_external_data=False)
    if any(target.recognizes is not None and target.recognizes(proto) for target in descriptions()):
        return "int8"  # only a target's own form of INT8 is recognized
    types = {tensor.data_type for graph in all_graphs(proto.graph) for tensor in graph.initializer}
    for operator in {node.op_type for node in all_nodes(proto.graph)}:
        if operator in _INTEGER_OPERATORS or operator.endswith("Integer") or operator.startswith("QLinear"):
            return "int8"
    if types & _INTEGERS:
        return "int8"
    return "half" if types & {TensorProto.FLOAT16, TensorProto.BFLOAT16} else "float"
