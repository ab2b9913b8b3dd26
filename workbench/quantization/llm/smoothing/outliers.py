"""Scales of the channels that stand out, the others staying as they are: m5, after CBQ (msmodelslim.md §5)."""

from __future__ import annotations

import torch

from workbench.quantization.llm.smoothing.statistics import ChannelStatistics

_LOW_QUANTILE, _HIGH_QUANTILE, _FENCE, _POWER = 0.2, 0.8, 1.5, 0.7


def outlier_scale(seen: ChannelStatistics) -> torch.Tensor:
    """Per channel (value / largest that does not stand out)^0.7, the larger of the positive and the negative side."""
    return torch.maximum(_side(seen.high), _side(-seen.low))


def _side(values: torch.Tensor) -> torch.Tensor:
    wide = values.to(torch.float32)
    low, high = wide.quantile(_LOW_QUANTILE), wide.quantile(_HIGH_QUANTILE)
    beyond = values[wide > high + _FENCE * (high - low)].sort().values
    if len(beyond) == 0:
        return torch.ones_like(values)
    limit = beyond[_split(beyond.to(torch.float32)) - 1] if len(beyond) > 1 else values[values < beyond[0]].max()
    wide = (wide / limit.to(torch.float32)).pow(_POWER).to(values.dtype)
    return torch.where(values > limit, wide, torch.ones_like(values))


def _split(ascending: torch.Tensor) -> int:
    """How many of the suspected channels are none: the gap behind them is wide and their variance is small."""
    found, most = 1, -float("inf")
    for kept in range(1, len(ascending)):
        gap = float(ascending[kept] - ascending[kept - 1])
        spread = float(ascending[:kept].var()) if kept > 1 else 0.0
        if gap - spread > most:
            found, most = kept, gap - spread
    return found
