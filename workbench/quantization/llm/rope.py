"""Rotary positions: cosine and sine of every position, of the kinds that transformers computes for these families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from workbench.quantization.llm.config import LlmConfig
from workbench.values.errors import ConfigError

_CLASSES: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Attributes:
    frequencies: float32 [head_dim / 2], radians a position.
    attention: factor of cosine and sine; 1 but for 'yarn'.
    """

    frequencies: torch.Tensor
    attention: float


def rope_of(config: LlmConfig) -> Rope:
    """The frequencies for prompts within the model's positions, where 'dynamic' is the same as 'default'.

    Raises:
        ConfigError: config.json lacks a number that the kind needs, or holds one that it cannot use.
    """
    kind = config.rope["rope_type"]
    if kind in ("default", "dynamic"):
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
        return Rope(frequencies=1.0 / (config.rope["rope_theta"] ** exponents), attention=1.0)
    try:
        found, attention = ROPE_INIT_FUNCTIONS[kind](_CLASSES[config.family].from_dict(dict(config.written)))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:  # of a value it cannot use
        raise ConfigError(
            f"rotary positions of kind {kind!r} cannot be computed from {config.rope}: {error!r}.", key="rope_scaling"
        ) from error
    return Rope(frequencies=found.to(torch.float32), attention=float(attention))


def rotations(
    rope: Rope, tokens: int, dtype: torch.dtype, first: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position, computed in float32, rounded to `dtype`.

    Args:
        first: position of the first token of every sequence [batch]; 0 for all when None.

    Returns:
        Both [tokens, head_dim], or with `first` [batch, 1, tokens, head_dim].
    """
    positions = torch.arange(tokens, dtype=torch.float32)
    if first is not None:
        positions = (positions + first.to(torch.float32)[:, None])[:, None]
    angles = positions[..., None] * rope.frequencies
    both = torch.cat((angles, angles), dim=-1)
    return (both.cos() * rope.attention).to(dtype), (both.sin() * rope.attention).to(dtype)
