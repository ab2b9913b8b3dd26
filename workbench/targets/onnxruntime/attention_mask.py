"""Which graph input is the mask of a self-attention, found by running the model (`draws`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto

from workbench.targets.onnxruntime.draws import MASKED, Draw, distant_draws, draws, mask_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One self-attention of the graph.

    Attributes:
        projections: the MatMulIntegerToFloat of query, key and value.
        heads: the tensors [batch, length, heads, size] that they become.
        mask: the tensor added to the scores, None where nothing is.
        merged: the tensor [batch, length, hidden] of the result.
        quantize: the QuantizeLinear on the way to `merged`, None where there is none.
        size: of one head.
    """

    projections: tuple[NodeProto, ...]
    heads: tuple[str, ...]
    mask: str | None
    merged: str
    quantize: NodeProto | None
    size: int


def mask_inputs(model: ModelProto, found: Sequence[Attention]) -> dict[str, tuple[str | None, float]]:
    """`merged` of every attention whose shapes and mask are as assumed → (the input that is its mask, the number).

    Raises:
        Whatever the runtime raises where the model cannot be run with ids of 0 and 1.
    """
    near = draws(model, {name for a in found for name in (*a.heads, a.merged, a.mask) if name})
    if not near:
        return {}
    found = [a for a in found if _has_expected_shapes(a, near)]
    distant = distant_draws(model, {a.mask for a in found if a.mask})
    masks: dict[str, tuple[str | None, float]] = {}
    for attention in found:
        # without a mask the number is ONNX Runtime's own default, and not used
        mask = (None, MASKED) if attention.mask is None else mask_of(attention.mask, [*near, *distant])
        if mask is not None:
            masks[attention.merged] = mask
    return masks


def _has_expected_shapes(attention: Attention, found: Sequence[Draw]) -> bool:
    for feeds, values in found:
        batch, length = next(iter(feeds.values())).shape
        heads = values[attention.heads[0]].shape[2]
        if any(values[name].shape != (batch, length, heads, attention.size) for name in attention.heads):
            return False
        if values[attention.merged].shape != (batch, length, heads * attention.size):
            return False
    return True
