"""The forward pass of one block, every step in the model's dtype and in the order in which transformers does it.

The linears are asked for by name, so that whoever observes, quantizes or executes them does so without a second
forward pass: `linear(name, x)` returns what the linear of that name gives for `x`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from workbench.quantization.llm.checkpoint import (
    EMBEDDING,
    LlmModel,
    Tensors,
    read_tensors,
)
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.fixed_order import torch_attention
from workbench.values.errors import ConfigError

_CLASSES: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


@lru_cache(maxsize=8)
def rope_of(config: LlmConfig) -> tuple[torch.Tensor, float]:
    """(frequencies float32 [head_dim / 2] in radians a position, factor of cosine and sine, 1 but for 'yarn') for
    prompts within the model's positions, where 'dynamic' is the same as 'default'."""
    kind = config.rope["rope_type"]
    if kind in ("default", "dynamic"):
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
        return 1.0 / (config.rope["rope_theta"] ** exponents), 1.0
    try:
        found, attention = ROPE_INIT_FUNCTIONS[kind](_CLASSES[config.family].from_dict(dict(config.written)))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:  # of a value it cannot use
        raise ConfigError(
            f"rotary positions of kind {kind!r} cannot be computed from {config.rope}: {error!r}.", key="rope_scaling"
        ) from error
    return found.to(torch.float32), float(attention)


def rotations(config: LlmConfig, tokens: int, first: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position, computed in float32, rounded to the model's dtype.

    Args:
        first: position of the first token of every sequence [batch]; 0 for all when None.

    Returns:
        Both [tokens, head_dim], or with `first` [batch, 1, tokens, head_dim].
    """
    frequencies, factor = rope_of(config)
    positions = torch.arange(tokens, dtype=torch.float32)
    if first is not None:
        positions = (positions + first.to(torch.float32)[:, None])[:, None]
    angles = positions[..., None] * frequencies
    both = torch.cat((angles, angles), dim=-1)
    return (both.cos() * factor).to(config.dtype), (both.sin() * factor).to(config.dtype)


Linear = Callable[[str, torch.Tensor], torch.Tensor]
"""(name relative to the block, x [batch, tokens, in]) → [batch, tokens, out]."""
Cache = Callable[[str, torch.Tensor], torch.Tensor]
"""('key' after rotation, or 'value'; [batch, kv_heads, tokens, head_dim]) → what attention reads."""
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(query [batch, heads, tokens, head_dim], key, value [batch, kv_heads, tokens, head_dim]) → as query."""


def float_linear(block: Tensors) -> Linear:
    """The linears of a block as they are."""
    return lambda name, x: F.linear(x, block[f"{name}.weight"], block.get(f"{name}.bias"))


def run_block(
    config: LlmConfig,
    block: Tensors,
    hidden: torch.Tensor,
    *,
    linear: Linear | None = None,
    cache: Cache | None = None,
    epsilon: float | None = None,
    attention: Attention | None = None,
    position: torch.Tensor | None = None,
) -> torch.Tensor:
    """One decoder block over whole sequences, causal, without padding mask.

    Args:
        block: tensors by names relative to the block. A norm may have a `.bias`, which is added in float32.
        hidden: [batch, tokens, hidden] in the model's dtype.
        linear: the block's own linears when None.
        cache: what attention reads of keys and values; themselves when None.
        epsilon: of the two norms before linears; the model's when None.
        attention: torch's, over the tokens given, when None.
        position: of the first token of every sequence [batch]; 0 for all when None.
    """
    epsilon = epsilon or config.epsilon
    linear = linear or float_linear(block)
    normed = norm(block, "input_layernorm", hidden, epsilon)
    hidden = hidden + attention_half(config, block, normed, linear, cache, attention, position)
    return hidden + feed_forward(norm(block, "post_attention_layernorm", hidden, epsilon), linear)


def attention_half(
    config: LlmConfig,
    block: Tensors,
    normed: torch.Tensor,
    linear: Linear,
    cache: Cache | None = None,
    attention: Attention | None = None,
    position: torch.Tensor | None = None,
) -> torch.Tensor:
    """What the first half of a block adds to its input, from the normed input [batch, tokens, hidden]."""
    batch, tokens, _ = normed.shape
    shape = (batch, tokens, -1, config.head_dim)
    query = linear("self_attn.q_proj", normed).view(shape)
    key = linear("self_attn.k_proj", normed).view(shape)
    if config.qk_norm:
        query = norm(block, "self_attn.q_norm", query, config.epsilon)
        key = norm(block, "self_attn.k_norm", key, config.epsilon)
    value = linear("self_attn.v_proj", normed).view(shape).transpose(1, 2)
    cos, sin = rotations(config, tokens, position)
    query, key = _rotated(query.transpose(1, 2), cos, sin), _rotated(key.transpose(1, 2), cos, sin)
    if cache is not None:
        key, value = cache("key", key), cache("value", value)
    attended = (attention or torch_attention)(query, key, value)
    attended = attended.transpose(1, 2).reshape(batch, tokens, -1).contiguous()
    return linear("self_attn.o_proj", attended)


def feed_forward(normed: torch.Tensor, linear: Linear) -> torch.Tensor:
    """What the second half adds, from its normed input."""
    gated = F.silu(linear("mlp.gate_proj", normed)) * linear("mlp.up_proj", normed)
    return linear("mlp.down_proj", gated)


def norm(block: Tensors, name: str, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMSNorm: x / rms(x) in float32, rounded to the dtype of x, times the weight; plus a bias where there is one."""
    wide = x.to(torch.float32)
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    out = block[f"{name}.weight"] * scaled.to(x.dtype)
    bias = block.get(f"{name}.bias")
    return out if bias is None else (out + bias).to(x.dtype)


def embed(model: LlmModel, samples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """[batch, tokens] of ids → [batch, tokens, hidden], for every sample."""
    name = f"{EMBEDDING}.weight"
    table = read_tensors(model, [name])[name]
    return [F.embedding(ids, table) for ids in samples]


def check_ids(config: LlmConfig, samples: Sequence[torch.Tensor]) -> None:
    """Raises ConfigError for a sample that has more tokens than the model's context, or ids that it does not know."""
    for number, ids in enumerate(samples):
        if ids.shape[-1] > config.context:
            raise ConfigError(
                f"sample {number} has {ids.shape[-1]} tokens, the model's context is {config.context}.",
                hint="Shorten the text.",
            )
        if int(ids.max()) >= config.vocabulary:
            raise ConfigError(
                f"token {int(ids.max())} of sample {number} is beyond the vocabulary of {config.vocabulary}.",
                hint="The tokenizer belongs to another model.",
            )


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos) + (turned * sin)
