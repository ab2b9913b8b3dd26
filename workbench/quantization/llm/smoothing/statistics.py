"""What smoothing wants to know of one input, gathered sample by sample in the model's dtype (msmodelslim.md §5)."""

from __future__ import annotations

import torch


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
