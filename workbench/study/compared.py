"""What a comparison of two models says: tensor by tensor, by the meaning of the outputs, and as a whole; of a compiled
model on its device, the first bad operator; and when two models count as the same: float forms by strict limits, INT8
by what it can keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import onnx
from onnx import TensorProto

from workbench.graph.nodes import all_graphs, all_nodes
from workbench.targets import descriptions
from workbench.targets.inside import Remedy
from workbench.values.documents.canonical import added_later, encode

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """One tensor over all batches; A is the reference.

    Attributes:
        node, op_type: what makes the tensor in A.
        not_finite: elements that are NaN or infinite in one of the two, or NaN in both; the other numbers leave
            them out, and such a tensor is never within limits.
        resized: batches in which the two differ in shape, as outputs do whose length depends on the data; the numbers
            are those of the part that both have.
        magnitude: the largest finite |a|.
        differing: elements that differ, of a tensor of whole numbers, whose other numbers mean little; None for floats.
        sqnr_db: 10 log10(Σa² / Σ(a - b)²), -100 at least; None for equal tensors.
        relative_error: the same as a ratio of norms: |a - b| / |a|, `comparison.WORST` at most.
        added_error: relative error beyond the largest of the compared tensors it is computed from; 0 at least.
        jump: `added_error` is at least `JUMP_SHARE` of the largest along the graph, and more than `FLOAT_NOISE`.
        rescaled: it differs, and the layers that read it undo the difference with their weights: its scale was moved
            into them (channel balancing), which is no error.
    """

    tensor: str
    node: str
    op_type: str
    is_output: bool
    elements: int
    not_finite: int
    cosine: float
    max_abs: float
    mae: float
    sqnr_db: float | None
    relative_error: float
    added_error: float
    jump: bool
    rescaled: bool
    within_limits: bool
    resized: int = 0
    differing: int | None = None
    magnitude: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One metric of what the outputs mean, over all samples.

    Attributes:
        a, b: its value for each of the two, A being the reference where it asks for one.
        limit: that B has to keep, in words; None where there is none.
    """

    metric: str
    a: float
    b: float
    limit: str | None = None
    kept: bool = True


Cause = Literal["range", "integers", "rounding"]
"""Numbers that a half cannot hold; a quantized layer's scales; or rounding, the operator's own or what it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadScale:
    """A quantized activation whose scale loses the float model's values.

    Attributes:
        layer: that computes with it.
        low, high: what its whole numbers can stand for.
        magnitude: largest |value| of the float model.
        relative_error: of the float model's values written with this scale, and read again.
    """

    layer: str
    tensor: str
    low: float
    high: float
    magnitude: float
    relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBad:
    """The first operator whose result is beyond the limits while all it reads is within them.

    Attributes:
        operator, op_type: in the compiled model.
        nodes: of the float model that it covers.
        types: it reads and writes.
        tensor: of the float model, whose numbers are wrong.
        magnitude: largest |value| of the float model there.
        not_finite, relative_error: of the device's values.
        kept: operators that a half cannot hold; itself where it rounds too much.
        layers: quantized ones behind it; those whose scales lose values, where there are such.
        scales: those of its INT8 inputs and outputs that lose values; empty where others are to blame, as weights.
        files: NPY files of its inputs and outputs as the device had them, and of the float model's.
    """

    operator: str
    op_type: str
    nodes: tuple[str, ...]
    types: str
    tensor: str
    cause: Cause
    magnitude: float
    not_finite: int
    relative_error: float
    mends: tuple[Remedy, ...]
    scales: tuple[BadScale, ...]
    files: tuple[str, ...]
    kept: tuple[str, ...] = added_later(())
    layers: tuple[str, ...] = added_later(())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFindings:
    """Attributes:
    operators: that ran in a call.
    folder: of the device's own files.
    """

    EARLIER: ClassVar = {"single": None}  # made while an operator could be run by itself
    about: str
    emulated: bool
    operators: int
    folder: str
    first_bad: FirstBad | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two models compared.

    Attributes:
        meaning: what the dataset's scorer says; empty without a dataset.
        unscored: why it could say nothing of B.
        a, b: what was compared, in words.
        rows: in graph order of A.
        only_in_a: how many tensors of A the other side lacks (fused away, or named otherwise).
        device: what a compiled model that ran on its device tells besides; None where B is executed here.
    """

    a: str
    b: str
    data: str
    batches: int
    limits: Limits
    rows: tuple[TensorComparison, ...]
    only_in_a: int
    meaning: tuple[Judgement, ...] = ()
    unscored: str = ""
    device: DeviceFindings | None = None

    @property
    def by_meaning(self) -> bool:
        """Whether the outputs pass by what they mean, as INT8 does where limits are declared or usual for it."""
        return self.limits.about == INT8.about and any(judgement.limit is not None for judgement in self.meaning)

    @property
    def first_jump(self) -> TensorComparison | None:
        """The first tensor in graph order where the error jumps."""
        return next((row for row in self.rows if row.jump), None)

    @property
    def first_beyond_limits(self) -> TensorComparison | None:
        return next((row for row in self.rows if not row.within_limits and not row.rescaled), None)

    @property
    def passed(self) -> bool:
        """Whether every model output is within the limits: those of their meaning where these decide."""
        if self.unscored:
            return False
        if self.by_meaning:
            return all(judgement.kept for judgement in self.meaning) and not any(row.not_finite for row in self.outputs)
        return all(row.within_limits for row in self.outputs)

    @property
    def outputs(self) -> tuple[TensorComparison, ...]:
        return tuple(row for row in self.rows if row.is_output)

    @property
    def equal(self) -> bool:
        """Whether no compared element differs at all."""
        return all(row.sqnr_db is None and not row.not_finite and not row.resized for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        first = {"first_jump": self.first_jump, "first_beyond_limits": self.first_beyond_limits}
        names = {key: None if row is None else row.tensor for key, row in first.items()}
        return {"version": 1, "passed": self.passed, "equal": self.equal, **names, **encode(self)}
