"""Which linears hurt most when they alone become integers: what a recipe that leaves some float leaves float first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from workbench.quantization.llm.affine import Affine, affine
from workbench.quantization.llm.checkpoint import LlmModel, read_block
from workbench.quantization.llm.forward import Linear, check_ids, embed, float_linear, run_block
from workbench.quantization.llm.observers import Extremes, Range
from workbench.quantization.llm.quantized import SOURCES, quantized_linear
from workbench.quantization.llm.recipe import LinearRecipe
from workbench.quantization.llm.walk import first_readers

_STATIC = LinearRecipe(type="W8A8")


def group_errors(
    model: LlmModel, samples: Sequence[torch.Tensor], groups: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """`model.layers.3.GROUP` → by how much its block's output moves, over all tokens the mean of ‖Δh‖² / ‖h‖².

    Each group of each block is quantized alone: its weights by channel, its input by the extremes of these samples
    (static W8A8, which is what float layers are left for). What goes in is the float model's, so every block's figure
    stands by itself. A mean over tokens, since a few of them are often so large that sums would be theirs alone.

    Args:
        samples: ids [1, tokens].
        groups: name → linears, by names relative to a block; linears of one group read the same tensor.
    """
    check_ids(model.config, samples)
    found, seen, ranges = dict[str, float](), dict[str, Extremes](), dict[str, Range]()

    def see(source: str, x: torch.Tensor) -> None:
        ranges[source] = seen.setdefault(source, Extremes()).update(x)

    with torch.inference_mode():
        stream = embed(model, samples)
        for index in range(model.config.layers):
            block = read_block(model, index)
            linear = float_linear(block)
            watched = first_readers(linear, see)
            seen.clear()
            plain = [run_block(model.config, block, x, linear=watched) for x in stream]
            for group, names in groups.items():
                by = affine(*ranges[SOURCES[names[0]]], symmetric=False, generation="v0")
                rounding = _rounding(block, linear, names, by)
                given = (run_block(model.config, block, x, linear=rounding) for x in stream)
                found[f"{model.prefix(index)}.{group}"] = _moved(plain, given)
            stream = plain
    return found


def _rounding(block: Mapping[str, torch.Tensor], linear: Linear, names: Sequence[str], by: Affine) -> Linear:
    """The block's linears, those of one group as integers."""
    integers = {}
    for name in names:
        weight = block[f"{name}.weight"]
        integers[name] = quantized_linear(weight, block.get(f"{name}.bias"), _STATIC, "v0", given=by)

    def rounding(name: str, x: torch.Tensor) -> torch.Tensor:
        return integers[name](x) if name in integers else linear(name, x)

    return rounding


def _moved(plain: Sequence[torch.Tensor], given: Iterable[torch.Tensor]) -> float:
    total, tokens = 0.0, 0
    for before, after in zip(plain, given, strict=True):
        wide = before.to(torch.float64)
        apart = (after.to(torch.float64) - wide).pow(2).sum(-1)
        total += float((apart / wide.pow(2).sum(-1).clamp(min=torch.finfo(torch.float64).tiny)).sum())
        tokens += apart.numel()
    return total / tokens
