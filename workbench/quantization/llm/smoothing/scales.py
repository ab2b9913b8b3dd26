"""Scales of a group that follow from its statistics without looking at an error."""

from __future__ import annotations

import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.recipe import Smooth
from workbench.quantization.llm.smoothing.groups import SmoothingGroup, over_heads

SMALLEST = 1e-5


def power_scale(
    largest: torch.Tensor, widest: torch.Tensor, alpha: float, beta: float, *, smallest: float = SMALLEST
) -> torch.Tensor:
    """a^alpha / w^beta, at least `smallest`."""
    return (largest.pow(alpha) / widest.pow(beta)).clamp(min=smallest)


def grouped_power_scale(
    stage: Smooth,
    config: LlmConfig,
    group: SmoothingGroup,
    largest: torch.Tensor,
    widest: torch.Tensor,
    alpha: float,
    beta: float,
) -> torch.Tensor:
    """The same, for 'ov' by heads of values: [kv_heads · head_dim]."""
    if group.kind == "ov" and stage.head_reduction == "max":
        largest, widest = over_heads(largest, config, "max"), over_heads(widest, config, "max")
    scale = power_scale(largest, widest, alpha, beta, smallest=stage.smallest)
    return over_heads(scale, config, "mean") if group.kind == "ov" and stage.head_reduction == "mean" else scale
