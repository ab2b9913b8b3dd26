"""What a comparison of two models says: tensor by tensor, by the meaning of the outputs, and as a whole; and of a
compiled model on its device, the first bad operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from workbench.study.limits import INT8, Limits
from workbench.targets.inside import Remedy
from workbench.values.documents.canonical import added_later, encode


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
