"""What smoothing wants to know of one input, and scales that follow from it without a search: powers, and those of
channels that stand out (m5, after CBQ, msmodelslim.md §5).
"""

from __future__ import annotations

import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.recipe import Smooth
from workbench.quantization.llm.smoothing.groups import SmoothingGroup, over_heads


class ChannelStatistics:
    """Attributes: per channel [K], all of them after the samples seen so far.

    low, high: least and largest value.
    largest: of |x|.
    shift: (low + high) / 2.
    above: the largest x − shift, with the shift of each sample's moment; `largest_shifted` the same of |x − shift|.
    deviation: of a scalar: the largest standard deviation of a sample's x − shift.
    first_mean: mean |x| of the first sample; `running_mean`: of all tokens, joined sample by sample.
    inputs: the samples [batch, tokens, K], where they are kept.
    """

    def __init__(self, *, keep: int | None) -> None:
        """keep: how many samples are kept; None for all."""
        self._keep = keep
        self._tokens = 0
        self.inputs: list[torch.Tensor] = []

    def update(self, x: torch.Tensor) -> None:
        """See a sample [batch, tokens, K]."""
        rows = x.reshape(-1, x.shape[-1])
        low, high = torch.aminmax(rows, dim=0)
        first = self._tokens == 0
        mean = rows.abs().mean(0)
        if first:
            self.low, self.high, self.largest = low, high, rows.abs().amax(0)
            self.first_mean = self.running_mean = mean
        else:
            total = self._tokens + len(rows)
            self.running_mean = (self.running_mean * self._tokens + mean * len(rows)) / total
            self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
            self.largest = torch.maximum(self.largest, rows.abs().amax(0))
        self.shift = (self.high + self.low) / 2
        shifted = rows - self.shift
        above, around, deviation = shifted.amax(0), shifted.abs().amax(0), shifted.std()
        if first:
            self.above, self.largest_shifted, self.deviation = above, around, deviation
        else:
            self.above = torch.maximum(self.above, above)
            self.largest_shifted = torch.maximum(self.largest_shifted, around)
            self.deviation = torch.maximum(self.deviation, deviation)
        self._tokens += len(rows)
        if self._keep is None or len(self.inputs) < self._keep:
            self.inputs.append(x)


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
