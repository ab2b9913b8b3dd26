"""Linears as integers, and what they compute where they stand in for the float ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from workbench.quantization.llm.affine import (
    Affine,
    Generation,
    affine,
    by_token,
    extremes,
    fake_quantized,
    refined_scale,
    rounded,
    searched_scale,
)
from workbench.quantization.llm.fixed_order import linear_product
from workbench.quantization.llm.recipe import LinearRecipe, Type

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
