"""Which linears of a block share an input that a scale can be folded into, and the folding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from workbench.quantization.llm.config import Family, LlmConfig
from workbench.quantization.llm.recipe import Generation, Group, Smooth

Block = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothingGroup:
    """Linears that read one tensor.

    Attributes:
        kind: 'norm-linear', 'ov' or 'up-down'.
        source: module whose output channels are divided: a norm, v_proj or up_proj.
        reads: the tensor's name, as in `affine.SOURCES`.
    """

    kind: Group
    source: str
    linears: tuple[str, ...]
    reads: str


INPUT = SmoothingGroup(
    kind="norm-linear",
    source="input_layernorm",
    linears=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    reads="attention",
)
INPUT_KEYS_FIRST = replace(INPUT, linears=("self_attn.k_proj", "self_attn.q_proj", "self_attn.v_proj"))
"""The order in which v1 names them for Qwen3, which decides the order of sums over their rows."""
POST = SmoothingGroup(
    kind="norm-linear", source="post_attention_layernorm", linears=("mlp.gate_proj", "mlp.up_proj"), reads="mlp"
)
OV = SmoothingGroup(kind="ov", source="self_attn.v_proj", linears=("self_attn.o_proj",), reads="attended")
UP_DOWN = SmoothingGroup(kind="up-down", source="mlp.up_proj", linears=("mlp.down_proj",), reads="gated")


def groups_of(stage: Smooth, family: Family, prefix: str) -> tuple[SmoothingGroup, ...]:
    """The groups of a block in the order in which they are scaled.

    Later groups see weights that earlier ones have scaled: v0 takes a traced model's norms first (Qwen2, Llama), and
    Qwen3's linears first; v1 takes up-down, then ov, then norms (msmodelslim.md §5, §6).
    """
    if stage.generation == "v1":
        order = (UP_DOWN, OV, INPUT_KEYS_FIRST if family == "qwen3" else INPUT, POST)
    else:
        order = (OV, INPUT, UP_DOWN, POST) if family == "qwen3" else (INPUT, OV, POST, UP_DOWN)
    return tuple(
        each
        for each in order
        if each.kind in stage.groups
        and not stage.skipped.intersection(f"{prefix}.{name}" for name in (*each.linears, each.source))
    )


def widest_weights(block: Block, group: SmoothingGroup, *, signed: bool = False) -> torch.Tensor:
    """Per input channel the largest |weight| of the group's linears, or the largest weight, at least 1e-5."""
    weights = [block[f"{name}.weight"] for name in group.linears]
    largest = [(weight if signed else weight.abs()).amax(0) for weight in weights]
    return torch.stack(largest).amax(0).clamp(min=1e-5)


def over_heads(values: torch.Tensor, config: LlmConfig, how: str) -> torch.Tensor:
    """[heads · head_dim] → [kv_heads · head_dim]: the query heads that share a head of values joined."""
    grouped = values.view(config.kv_heads, config.group, config.head_dim)
    return (grouped.mean(1) if how == "mean" else grouped.amax(1)).reshape(-1)


def to_heads(values: torch.Tensor, config: LlmConfig) -> torch.Tensor:
    """[kv_heads · head_dim] → [heads · head_dim]."""
    return values.view(config.kv_heads, 1, config.head_dim).expand(-1, config.group, -1).reshape(-1)


def fold(
    block: Block,
    group: SmoothingGroup,
    config: LlmConfig,
    scale: torch.Tensor,
    shift: torch.Tensor | None,
    generation: Generation,
) -> None:
    """Multiply the linears' columns by a scale, and divide what comes before by it; in place of the block's entries.

    Args:
        scale: [K] of the group's input; for 'ov' [kv_heads · head_dim].
        shift: [K], of norms alone: subtracted by the norm's new bias, given back by the linears' biases.
        generation: v0 divides, v1 multiplies by the reciprocal, which differs in the last bit.
    """

    def divided(values: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return values / by if generation == "v0" else values * (1 / by)

    columns = to_heads(scale, config) if group.kind == "ov" else scale
    for name in group.linears:
        weight = block[f"{name}.weight"]
        if shift is not None:
            added = weight @ shift if generation == "v0" else (shift[None] @ weight.T)[0]
            bias = block.get(f"{name}.bias")
            block[f"{name}.bias"] = added if bias is None else bias + added
        block[f"{name}.weight"] = weight * columns
    source = block[f"{group.source}.weight"]
    if group.kind == "norm-linear":
        block[f"{group.source}.weight"] = divided(source, scale)
        if shift is not None:
            block[f"{group.source}.bias"] = divided(-shift.to(torch.float32), scale.to(torch.float32))
        return
    block[f"{group.source}.weight"] = divided(source, scale[:, None])
    if (bias := block.get(f"{group.source}.bias")) is not None:
        block[f"{group.source}.bias"] = divided(bias, scale)


# --- what is seen of an input, and scales without a search -----------------------------------------------------------


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
