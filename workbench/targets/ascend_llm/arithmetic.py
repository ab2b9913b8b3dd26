"""The arithmetic of the 910B's operators as vLLM-Ascend calls them for quantized linears and caches.

Sources are the open kernels of CANN (github.com/hicann/ops-nn) and vLLM-Ascend's methods; where they say nothing, the
line says [inferred]. Every function is element-wise or by row and deterministic; integers are exact.

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

import torch

_KEPT_BITS = -(1 << 13)
"""0xFFFFE000: sign, exponent and ten bits of the mantissa."""


def static_integers(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """int8 of x by one range.

    The reciprocal is rounded to the model's dtype first, so in bfloat16 a large value may lie a step from x / scale.

    Args:
        x: in the model's dtype.
        scale: [1] in the model's dtype; offset: int8 [1].
    """
    reciprocal = (1 / scale).to(torch.float32)
    return _int8(x.to(torch.float32).mul(reciprocal).add_(offset.to(torch.float32)))


def dynamic_integers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 of x by token (the last axis), and the scale of every token [..., 1] in float32.

    A token of zeros gives zeros and the scale 0: 127 / 0 is infinite, and so the kernel's 1 / r is 0.
    """
    wide = x.to(torch.float32)
    largest = wide.abs().amax(-1, keepdim=True)
    reciprocal = torch.full_like(largest, 127.0) / largest  # a number over a tensor is rounded twice in torch
    return _int8(wide * reciprocal), 1 / reciprocal


def static_output(sums: torch.Tensor, factors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sums with their integer bias, int32 [..., N], times factors [N] in float32, rounded to `dtype`."""
    return sums.to(torch.float32).mul_(factors).to(dtype)


def dynamic_output(
    sums: torch.Tensor, scale: torch.Tensor, tokens: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """Sums int32 [..., N] times the weight's scale [N], times the tokens' [..., 1], plus bias; rounded to `dtype`."""
    wide = sums.to(torch.float32).mul_(scale.to(torch.float32)).mul_(tokens)
    return (wide if bias is None else wide.add_(bias.to(torch.float32))).to(dtype)


def device_factors(factors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Factors as the card multiplies by them: whole for bfloat16 (and float32), 19 bits of them for float16."""
    if dtype != torch.float16:
        return factors
    return (factors.view(torch.int32) & _KEPT_BITS).view(torch.float32)


def cached(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Keys or values as they come back out of an int8 cache, in their dtype.

    Args:
        x: [batch, kv_heads, tokens, head_dim].
        scale: [kv_heads · head_dim] in the same dtype.
    """
    by = scale.view(1, x.shape[1], 1, x.shape[3])
    return torch.round(x * (1 / by)).clamp_(-128, 127) * by


def _int8(wide: torch.Tensor) -> torch.Tensor:
    """Half to even, beyond int8 to its ends; NaN to 0 as the vector unit's conversion to integers has it [inferred]."""
    return torch.nan_to_num_(wide.round_(), nan=0.0).clamp_(-128, 127).to(torch.int8)
