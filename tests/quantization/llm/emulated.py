"""What the vendor's tool computes in its own memory behind a run of a recipe, for logits kept beside its files."""

from collections.abc import Sequence

import torch

from workbench.quantization.llm.affine import Affine, fake_quantized
from workbench.quantization.llm.checkpoint import FINAL_NORM, HEAD, LlmModel
from workbench.quantization.llm.fixed_order import linear_product
from workbench.quantization.llm.forward import embedded, float_decoder, norm
from workbench.quantization.llm.recipe import LlmRecipe, Survey
from workbench.quantization.llm.run import Samples, blocks, outer_tensors, read_rotated, rotation_of, start
from workbench.quantization.llm.walk import WorkingBlock, run_through


def fake_logits(
    model: LlmModel, recipe: LlmRecipe, samples: Samples, prompts: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Logits of prompts; with v1's dynamic types they are not what a device computes (msmodelslim.md §9)."""
    with torch.inference_mode():
        rotation = rotation_of(model, recipe)
        watched = [
            x if rotation is None else read_rotated(x, rotation) for x in embedded(float_decoder(model), prompts)
        ]
        # of a survey they are ranges of k_proj and v_proj themselves, by which the tool does not quantize in memory
        surveyed = any(isinstance(stage, Survey) and stage.cache for stage in recipe.stages)
        for block in blocks(model, recipe, start(model, recipe, samples)):
            run_through(block, watched, _Linears(block).linear, None if surveyed else _Linears(block).cached)
        outer = outer_tensors(model, recipe)
        normed = (norm(outer, FINAL_NORM, x, model.config.epsilon) for x in watched)
        return [linear_product(x, outer[f"{HEAD}.weight"]) for x in normed]


class _Linears:
    """Of a finished block, in the model's dtype."""

    def __init__(self, block: WorkingBlock) -> None:
        self._block = block

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        quantized = self._block.linears.get(name)
        return self._block.linear(name, x) if quantized is None else quantized(x)

    def cached(self, what: str, x: torch.Tensor) -> torch.Tensor:
        """What attention reads of keys or values [batch, kv_heads, tokens, head_dim]."""
        by = self._block.cache.get(what)
        if by is None:
            return x
        shape = (1, x.shape[1], 1, x.shape[3])
        return fake_quantized(x, Affine(scale=by.scale.view(shape), offset=by.offset.view(shape)))
