"""A written checkpoint, run on the processor from its files with exact integer sums and the device's order of steps.

What is exact: integers, their sums, and every rounding of scales and factors. What is this machine's:
norms, rotations, attention, activations and products of floats, which follow transformers' order in the model's dtype;
how a card adds up the terms of a float sum is not documented. Nothing here is measured on a device.

The arithmetic is that of the 910B's operators as vLLM-Ascend calls them for quantized linears and caches. Sources are
the open kernels of CANN (github.com/hicann/ops-nn) and vLLM-Ascend's methods; where they say nothing, the line says
[inferred].

static input
    r = 1 / input_scale in the model's dtype; int8(rint(float32(x) · r + input_offset)), both steps in float32
    (vLLM-Ascend w8a8_static.py, register_custom_ops.py: npu_quantize; ops-nn ascend_quant_v2).
dynamic input
    r = 127 / max|x| of the token in float32; int8(rint(x · r)); scale of the token 1 / r
    (w8a8_dynamic.py: npu_dynamic_quant; dynamic_quant, whose document writes max|x| / 127).
static output
    float32(sum + quant_bias) · deq_scale, rounded once to the model's dtype
    (npu_quant_matmul; quant_batch_matmul_v3_bf16.h).
dynamic output
    (float32(sum) · weight_scale) · token scale + bias in float32, rounded once (quant_batch_matmul_v3_pertoken.h).
cache
    int8(rint(x · (1 / scale))) in the model's dtype, read back as q · scale in the same (attention_v1.py). The order
    of steps inside the attention kernel that reads it is [inferred].

For float16 the factors of a static output reach the card as 64-bit integers, of whose float32 the fixed-function unit
reads the upper 19 bits (aclnnTransQuantParam); that the engine's untouched 32 bits are read so too is [inferred].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import torch

from workbench.quantization.llm.affine import SOURCES, Affine
from workbench.quantization.llm.fixed_order import integer_product, plain_linear
from workbench.quantization.llm.forward import float_linear
from workbench.quantization.llm.forwards import Decoder, RunningBlock, Stage
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.served_block import (
    ServedBlock,
    ServedLinear,
    check_tied,
    read_served_block,
    read_served_embedding,
    read_served_head,
)

_KEPT_BITS = -(1 << 13)
"""0xFFFFE000: sign, exponent and ten bits of the mantissa."""


_Integers = tuple[torch.Tensor, torch.Tensor | None]
"""An input [tokens, K], and the scales of its tokens [tokens, 1], None for a static range."""
_LAST_READERS = {source: name for name, source in SOURCES.items()}
"""Tensor → the last linear of a block that reads it."""


def served_decoder(served: Served, *, keep: bool = False) -> Decoder:
    """A checkpoint as the steps of its computation, for `logits_of` and `greedy`.

    Deterministic for one number of threads and one version of torch; the integer sums on any machine.

    Args:
        keep: blocks, embedding and head stay in memory after the first call, for quick further calls; otherwise one
            block is in memory at a time.
    """

    def block(index: int) -> Callable[[Stage], RunningBlock]:
        return running_block(read_served_block(served, index), served.config.dtype)

    def embedding() -> torch.Tensor:
        return read_served_embedding(served)

    def head() -> dict[str, torch.Tensor]:
        checked()
        return read_served_head(served)

    checked = lru_cache(partial(check_tied, served))
    held = lru_cache(maxsize=None)(block) if keep else block
    return Decoder(
        config=served.config,
        embedding=lru_cache(embedding) if keep else embedding,
        head=lru_cache(head) if keep else head,
        block=lambda index, stage: held(index)(stage),
    )


def running_block(block: ServedBlock, dtype: torch.dtype) -> Callable[[Stage], RunningBlock]:
    """How a block computes, by stage; linears that read one tensor share its integers."""
    floats = float_linear(block.tensors)
    latest: dict[tuple[str, bool], tuple[torch.Tensor, _Integers]] = {}
    meant = {  # of W8A16 in the model's dtype, as the kernel widens it before a float product
        name: linear.weight.to(dtype) * linear.scale[:, None]
        for name, linear in block.linears.items()
        if linear.type == "W8A16" and linear.scale is not None
    }

    def linear(stage: Stage, name: str, x: torch.Tensor) -> torch.Tensor:
        ours = block.linears.get(name)
        if ours is None:
            return floats(name, x)
        if ours.type == "W8A16":
            return plain_linear(x, meant[name], ours.bias)
        static = ours.type == "W8A8" or (ours.type == "W8A8_MIX" and stage == "decode")
        key = SOURCES[name], static
        seen, integers = latest.pop(key, (None, None))
        if integers is None or seen is not x:
            integers = _integers(x.reshape(-1, x.shape[-1]), ours.input if static else None)
        if _LAST_READERS[SOURCES[name]] != name:  # nothing of a window stays with a block that stays in memory
            latest[key] = (x, integers)
        return _output(ours, integers, dtype).view(*x.shape[:-1], -1)

    def kept(what: str, x: torch.Tensor) -> torch.Tensor:
        """Keys or values as they come back out of an int8 cache, in their dtype."""
        if what not in block.cache:
            return x
        by = block.cache[what].view(1, x.shape[1], 1, x.shape[3])
        return torch.round(x * (1 / by)).clamp_(-128, 127) * by

    return lambda stage: RunningBlock(tensors=block.tensors, linear=partial(linear, stage), kept=kept)


def _integers(x: torch.Tensor, by: Affine | None) -> _Integers:
    """int8 of x by a static range, or by token.

    The reciprocal of a static scale is rounded to the model's dtype first, so in bfloat16 a large value may lie a step
    from x / scale. A token of zeros gives zeros and the scale 0: 127 / 0 is infinite, and so the kernel's 1 / r is 0.
    Half is rounded to even, beyond int8 to its ends, NaN to 0 as the vector unit's conversion has it [inferred].
    """
    wide, tokens = x.to(torch.float32), None
    if by is not None:
        wide = wide.mul((1 / by.scale).to(torch.float32)).add_(by.offset.to(torch.float32))
    else:
        largest = wide.abs().amax(-1, keepdim=True)
        reciprocal = torch.full_like(largest, 127.0) / largest  # a number over a tensor is rounded twice in torch
        wide, tokens = wide * reciprocal, 1 / reciprocal
    return torch.nan_to_num_(wide.round_(), nan=0.0).clamp_(-128, 127).to(torch.int8), tokens


def _output(linear: ServedLinear, given: _Integers, dtype: torch.dtype) -> torch.Tensor:
    """[tokens, N] in the model's dtype. The float bias of a static linear is in its integer bias."""
    values, tokens = given
    sums = integer_product(values, linear.weight)
    if tokens is None:
        assert linear.integer_bias is not None  # a static type has it,
        assert linear.factors is not None  # and this
        factors = linear.factors
        if dtype == torch.float16:  # of which the card reads 19 bits, else all
            factors = (factors.view(torch.int32) & _KEPT_BITS).view(torch.float32)
        return sums.add_(linear.integer_bias).to(torch.float32).mul_(factors).to(dtype)
    assert linear.scale is not None  # so has a dynamic one
    wide = sums.to(torch.float32).mul_(linear.scale.to(torch.float32)).mul_(tokens)
    return (wide if linear.bias is None else wide.add_(linear.bias.to(torch.float32))).to(dtype)
