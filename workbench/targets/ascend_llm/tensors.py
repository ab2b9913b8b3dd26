"""A quantized block as tensors of the vendor's weight file, with their types in the description (msmodelslim.md §3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from workbench.quantization.llm.affine import Affine, Generation
from workbench.quantization.llm.quantized import QuantizedBlock, QuantizedLinear

CACHED = {"key": "self_attn.k_proj", "value": "self_attn.v_proj"}
CACHE_TYPE = "C8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Attributes:
    name: full name of the tensor.
    type: its value in the description.
    """

    name: str
    type: str
    value: torch.Tensor


def block_entries(block: QuantizedBlock, prefix: str, generation: Generation, dtype: torch.dtype) -> Iterator[Entry]:
    """Every tensor of a block.

    Args:
        dtype: the model's.
    """
    for name, value in block.tensors.items():
        yield Entry(name=f"{prefix}.{name}", type="FLOAT", value=value)
    for name, linear in block.linears.items():
        yield from linear_entries(linear, f"{prefix}.{name}", generation, dtype)
    for what, by in block.cache.items():
        for part, value in (("scale", by.scale), ("offset", by.offset)):
            yield Entry(name=f"{prefix}.{CACHED[what]}.kv_cache_{part}", type=CACHE_TYPE, value=value)


def linear_entries(linear: QuantizedLinear, name: str, generation: Generation, dtype: torch.dtype) -> Iterator[Entry]:
    """The tensors of one linear: v0 in the model's dtype, v1 in float32 (msmodelslim.md §3.2)."""

    def stored(value: torch.Tensor) -> torch.Tensor:
        return value.to(torch.float32) if generation == "v1" else value

    def entry(part: str, value: torch.Tensor) -> Entry:
        return Entry(name=f"{name}.{part}", type=linear.type, value=value)

    yield entry("weight", linear.weight)
    if linear.bias is not None:
        yield Entry(name=f"{name}.bias", type="FLOAT", value=stored(linear.bias))
    if generation == "v0" or linear.type != "W8A8":
        yield entry("weight_scale", stored(linear.by.scale))
        yield entry("weight_offset", stored(linear.by.offset))
    if linear.input is None:
        return
    yield entry("input_scale", stored(linear.input.scale))
    yield entry("input_offset", stored(linear.input.offset))
    deq = dequantization(linear)
    yield entry("quant_bias", integer_bias(linear, linear.input, deq, generation))
    yield entry("deq_scale", deq.flatten() if dtype == torch.bfloat16 else _as_bits(deq.flatten()))


def dequantization(linear: QuantizedLinear) -> torch.Tensor:
    """input_scale · weight_scale in the dtype of the two, widened to float32: [N, 1] (msmodelslim.md §3.3)."""
    assert linear.input is not None  # only static linears have one
    deq = (linear.input.scale * linear.by.scale).to(torch.float32)
    return deq.expand(len(linear.weight), 1)


def integer_bias(linear: QuantizedLinear, given: Affine, deq: torch.Tensor, generation: Generation) -> torch.Tensor:
    """round(bias / deq − offset · Σ_k q) as int32 [N] (msmodelslim.md §3.4)."""
    correction = given.offset.to(torch.float32) * linear.weight.to(torch.float32).sum(1)
    if linear.bias is None:
        return torch.round(-correction).to(torch.int32)
    by = deq.flatten()
    if generation == "v1":  # in the dtype of the scales: that of the model, or float32 behind a histogram
        by = by.to(given.scale.dtype)
    bias = linear.bias / by
    return torch.round(bias.to(torch.float32) - correction).to(torch.int32)


def _as_bits(scales: torch.Tensor) -> torch.Tensor:
    """The bits of float32 as signed integers, widened to int64, which the vendor's operators take for float16."""
    return scales.contiguous().view(torch.int32).to(torch.int64)
