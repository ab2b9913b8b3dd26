"""Scales, offsets and integers of 8 bits, every step in the dtype of the tensors given (msmodelslim.md §4).

The two generations of the vendor's tool differ in the order of operations, so in the last bit: 'v0' divides the
difference of the bounds, 'v1' subtracts the divided bounds. Rounding is half to even. Scales of weights may also be
those of the least squared error: ours, and the vendor's ssz. `QuantizedLinear` is a linear as integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from workbench.quantization.llm.fixed_order import linear_product
from workbench.quantization.llm.recipe import Generation, LinearRecipe, Type

LOWEST, HIGHEST = -128, 127
SMALLEST_SCALE = 2.0**-23
"""float32's epsilon, rounded to the dtype of the scale (msmodelslim.md §4.2); float16 has it as a subnormal number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """x ≈ (q − offset) · scale.

    Attributes:
        scale, offset: of one shape that broadcasts over x; integers in `offset`, both in the dtype of x.
    """

    scale: torch.Tensor
    offset: torch.Tensor


def affine(low: torch.Tensor, high: torch.Tensor, *, symmetric: bool, generation: Generation) -> Affine:
    """Scale and offset of ranges, which are widened to hold zero first."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    if symmetric:
        scale = (torch.maximum(-low, high) / HIGHEST).clamp(min=SMALLEST_SCALE)
        return Affine(scale=scale, offset=torch.zeros_like(scale))
    width = (high - low) / 255 if generation == "v0" else high / 255 - low / 255
    scale = width.clamp(min=SMALLEST_SCALE)
    return Affine(scale=scale, offset=torch.round(-low / scale) + LOWEST)


def rounded(x: torch.Tensor, by: Affine) -> torch.Tensor:
    """The integers of x as values of its dtype: clamp(round(x / scale + offset))."""
    return torch.round(x / by.scale + by.offset).clamp_(LOWEST, HIGHEST)


def fake_quantized(x: torch.Tensor, by: Affine) -> torch.Tensor:
    """x as its integers mean it, in its dtype; a wider scale widens the steps between."""
    return ((rounded(x, by) - by.offset) * by.scale).to(x.dtype)


def extremes(x: torch.Tensor, axis: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and largest value: of the tensor, with shape (1,), or along an axis that is kept with size 1."""
    if axis is None:
        low, high = torch.aminmax(x)
        return low.reshape(1), high.reshape(1)
    low, high = torch.aminmax(x, dim=axis, keepdim=True)
    return low, high


def by_token(x: torch.Tensor, *, symmetric: bool, generation: Generation) -> Affine:
    """The range of every token, which is what the last axis holds (msmodelslim.md §4.5)."""
    return affine(*extremes(x, -1), symmetric=symmetric, generation=generation)


_COARSE = tuple(2.0 ** (-step / 12) for step in range(20))  # 1 down to 0.33
_FINE = tuple(2.0 ** (step / 72) for step in range(-5, 6))
_ROWS_AT_ONCE = 1 << 20
"""Values looked at together; a few mebibytes of scratch."""


_REFINED_ENOUGH = 1e-10


def refined_scale(weight: torch.Tensor, widest: torch.Tensor, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """ssz: the integers give the scale with the least squared error, which gives new integers, and so on.

    It ends when no row gains 1e-10, in all or relative to an error of 1e-4. A row keeps the best scale that it had.
    Sums are along the first axis of the transposed weight, as in the vendor's tool, whose order they have.
    """

    def integers(scale: torch.Tensor) -> torch.Tensor:
        return torch.round(columns / scale).clamp(LOWEST, HIGHEST)

    def error(scale: torch.Tensor, quantized: torch.Tensor) -> torch.Tensor:
        return (columns - (quantized * scale).to(dtype)).abs().pow(2).mean(0)

    columns = weight.T
    best = widest.flatten()
    quantized = integers(best)
    least = error(best, quantized)
    for _ in range(steps):
        scale = (columns * quantized).sum(0) / (quantized * quantized).sum(0).clamp(min=1e-30)
        quantized = integers(scale)
        found = error(scale, quantized)
        gain = least - found
        if not bool(((gain / least.clamp(min=1e-4) >= _REFINED_ENOUGH) & (gain.abs() >= _REFINED_ENOUGH)).any()):
            break
        better = found < least
        best, least = torch.where(better, scale, best), torch.where(better, found, least)
    return best[:, None]


def searched_scale(weight: torch.Tensor, widest: torch.Tensor, importance: torch.Tensor | None) -> torch.Tensor:
    """Per row the scale with the least Σ_k importance_k · (q·s − w)²; a tie keeps the larger.

    Tried are the widest scale times 20 factors from 1 down to 0.33 in twelfths of an octave, then ten finer ones
    around the best. Candidates are rounded to the dtype of the weight first, so that what is judged is what is stored.

    Args:
        weight: [N, K].
        widest: the min-max scale, [N, 1] or [1, 1], symmetric.
        importance: [K], not negative; 1 for all when None.
    """
    if widest.shape[0] == 1 < weight.shape[0]:
        importance = None if importance is None else importance.repeat(weight.shape[0])
        weight = weight.reshape(1, -1)

    def least(rows: torch.Tensor, scale: torch.Tensor, most: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
        wide, errors = rows.to(torch.float32), []
        tried = [
            torch.minimum((scale * each).clamp(min=SMALLEST_SCALE), most) for each in sorted(factors, reverse=True)
        ]
        for each in tried:
            steps = each.to(torch.float32)
            error = (torch.round(wide / steps).clamp_(-HIGHEST, HIGHEST) * steps - wide).pow_(2)
            errors.append(error.sum(1) if importance is None else error @ importance.to(torch.float32))
        return torch.cat(tried, 1).gather(1, torch.stack(errors, 1).argmin(1, keepdim=True))

    at_once = max(1, _ROWS_AT_ONCE // weight.shape[1])
    parts = zip(*(torch.split(each, at_once) for each in (weight, widest)), strict=True)
    return torch.cat([least(rows, least(rows, most, most, _COARSE), most, _FINE) for rows, most in parts])


# --- linears as integers, and what they compute where they stand in for the float ones -------------------------------


SOURCES = {
    "self_attn.q_proj": "attention",
    "self_attn.k_proj": "attention",
    "self_attn.v_proj": "attention",
    "self_attn.o_proj": "attended",
    "mlp.gate_proj": "mlp",
    "mlp.up_proj": "mlp",
    "mlp.down_proj": "gated",
}
"""Linear → the tensor that it reads. Linears that read one tensor have one range of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLinear:
    """One linear as integers.

    Attributes:
        weight: int8 [N, K].
        by: of the weight, [N, 1] in the model's dtype (or [1, 1] where one scale serves all channels).
        bias: float [N], or None.
        input: static range of the input, [1] in the model's dtype, or None.
        meant: the weight as the integers mean it, before they are clipped for the file.
        by_sample_channel: a dynamic input is quantized along the token axis, which is what the vendor's tool does in
            its own memory (msmodelslim.md §9); its later stages see what comes out of that.
    """

    type: Type
    generation: Generation
    weight: torch.Tensor
    by: Affine
    bias: torch.Tensor | None
    input: Affine | None
    meant: torch.Tensor
    by_sample_channel: bool = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The output, computed in floats as the vendor's tool does."""
        return linear_product(self._given(x), self.meant, self.bias)

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        """The same with the product in float32 and a float32 output, as later stages of v1 see it.

        Found in the tool's files: a static input is dequantized in the dtype of its scale (one by sample and channel
        in its own), and after such a stage a bfloat16 model's ranges are float32 from the next block on.
        """
        given = self._given(x)
        if self.input is not None and not self.by_sample_channel:
            given = given.to(self.input.scale.dtype)
        bias = None if self.bias is None else self.bias.to(torch.float32)
        return linear_product(given.to(torch.float32), self.meant.to(torch.float32), bias)

    def _given(self, x: torch.Tensor) -> torch.Tensor:
        if self.input is not None and not self.by_sample_channel:
            return fake_quantized(x, self.input)
        if self.by_sample_channel:
            return fake_quantized(x, affine(*extremes(x, 1), symmetric=True, generation=self.generation))
        if self.type == "W8A8_DYNAMIC":
            return fake_quantized(x, by_token(x, symmetric=False, generation=self.generation))
        return x


def quantized_linear(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    recipe: LinearRecipe,
    generation: Generation,
    *,
    given: Affine | None = None,
    mean_square: torch.Tensor | None = None,
    errors: torch.dtype = torch.float32,
) -> QuantizedLinear:
    """The integers of a linear of weight [N, K], and its scales [N, 1], or [1, 1] where one serves all channels.

    In the file of v0 a symmetric weight ends at −127, in its memory at −128 (msmodelslim.md §4.3).

    Args:
        given: static range of the input.
        mean_square: of every input channel [K], for 'output_mse'.
        errors: dtype in which 'ssz' compares.
    """
    low, high = extremes(weight, -1)
    if not recipe.by_channel:
        low, high = low.min().reshape(1, 1), high.max().reshape(1, 1)
    by = affine(low, high, symmetric=recipe.weight_symmetric, generation=generation)
    if recipe.weight == "ssz":
        by = replace(by, scale=refined_scale(weight, by.scale, recipe.refinements, errors))
    elif recipe.weight != "minmax":
        importance = mean_square if recipe.weight == "output_mse" else None
        by = replace(by, scale=searched_scale(weight, by.scale, importance))
    integers = rounded(weight, by)
    meant = (integers - by.offset) * by.scale
    if generation == "v0" and recipe.weight_symmetric:
        integers = integers.clamp(min=-127)
    return QuantizedLinear(
        type=recipe.type,
        generation=generation,
        weight=integers.to(torch.int8),
        by=by,
        bias=bias,
        input=given,
        meant=meant,
        by_sample_channel=generation == "v1" and recipe.type in ("W8A8_DYNAMIC", "W8A8_MIX"),
    )
