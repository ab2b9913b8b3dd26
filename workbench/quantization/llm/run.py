"""A recipe over a whole model, block by block.

streams = start(model, recipe, samples)
for block in blocks(model, recipe, streams):      # `streams` stand behind the block that was yielded
    ...                                           # so that keeping both is enough to go on later
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from workbench.quantization.llm.affine import SOURCES, Affine, affine, quantized_linear
from workbench.quantization.llm.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LlmModel,
    head_name,
    read_block,
    read_tensors,
)
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.forward import Linear, embedded, float_decoder, float_linear, run_block
from workbench.quantization.llm.observers import Extremes, Range
from workbench.quantization.llm.recipe import Data, LinearRecipe, LlmRecipe, Quantize, Rotate, Stage, Survey
from workbench.quantization.llm.walk import Stream, WorkingBlock, first_readers, needs_data, take_phase
from workbench.values.errors import ConfigError

Samples = Mapping[Data, Sequence[torch.Tensor]]
"""Ids [batch, tokens] of every sample; without 'smoothing' that is the same as 'calibration'."""


def start(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> list[Stream]:
    """One stream for each phase, before the first block; empty where a phase needs no data."""
    rotation = rotation_of(model, recipe)
    begun: dict[Data, Stream] = {}
    for phase in recipe.phases:
        if phase.data not in begun and any(map(needs_data, phase.stages)):
            hidden = embedded(float_decoder(model), samples.get(phase.data) or samples["calibration"])
            with torch.inference_mode():
                begun[phase.data] = hidden if rotation is None else [read_rotated(x, rotation) for x in hidden]
    return [list(begun[phase.data]) if any(map(needs_data, phase.stages)) else [] for phase in recipe.phases]


def blocks(model: LlmModel, recipe: LlmRecipe, streams: list[Stream], *, first: int = 0) -> Iterator[WorkingBlock]:
    """The blocks from `first` on, quantized one after another.

    Args:
        streams: those of `start`, or as they stood behind block first − 1; changed on the way.
    """
    rotation = rotation_of(model, recipe)
    for index in range(first, model.config.layers):
        tensors = read_block(model, index)
        if rotation is not None:
            rotate_block(tensors, model.config, rotation)
        block = WorkingBlock(config=model.config, index=index, prefix=model.prefix(index), tensors=tensors)
        with torch.inference_mode():
            for phase, stream in zip(recipe.phases, streams, strict=True):
                take_phase(block, phase, stream)
        for name in block.linears:
            for part in ("weight", "bias"):
                tensors.pop(f"{name}.{part}", None)
        yield block


def left_float(model: LlmModel, recipe: LlmRecipe, samples: Samples) -> tuple[str, ...]:
    """Full names of the linears whose inputs stand out most, as many as the recipe leaves float (`disable_level`).

    Linears with the same input have the same spread; the earlier comes first. Those that the recipe leaves float by
    name are not counted.
    """
    if not recipe.worst:
        return ()
    place = next(n for n, phase in enumerate(recipe.phases) if any(isinstance(s, Survey) for s in phase.stages))
    looking = replace(recipe, phases=recipe.phases[: place + 1])
    spreads: dict[str, float] = {}
    for block in blocks(model, looking, start(model, looking, samples)):
        spreads |= {f"{block.prefix}.{name}": block.spreads[source] for name, source in SOURCES.items()}
    quantized = {name for stage in recipe.stages if isinstance(stage, Quantize) for name in stage.linears}
    ranked = sorted((name for name in spreads if name in quantized), key=lambda name: -spreads[name])
    return tuple(ranked[: recipe.worst])


def without(recipe: LlmRecipe, names: Sequence[str]) -> LlmRecipe:
    """The same recipe with these linears left float."""

    def left(stage: Stage) -> Stage:
        if not isinstance(stage, Quantize):
            return stage
        return replace(stage, linears={name: how for name, how in stage.linears.items() if name not in names})

    phases = (replace(phase, stages=tuple(map(left, phase.stages))) for phase in recipe.phases)
    return replace(recipe, phases=tuple(phases))


def outer_tensors(model: LlmModel, recipe: LlmRecipe) -> dict[str, torch.Tensor]:
    """Embedding, final norm and head by their full names, as the recipe leaves them."""
    read = read_tensors(model, [f"{EMBEDDING}.weight", f"{FINAL_NORM}.weight", head_name(model)])
    read[f"{HEAD}.weight"] = read[head_name(model)]
    norm = f"{FINAL_NORM}.weight"
    if (rotation := rotation_of(model, recipe)) is not None:
        read[f"{HEAD}.weight"] = read_rotated(read[f"{HEAD}.weight"] * read[norm], rotation)
        read[f"{EMBEDDING}.weight"] = read_rotated(read[f"{EMBEDDING}.weight"], rotation)
        read[norm] = torch.ones_like(read[norm])
    if recipe.norm_bias:
        read[f"{FINAL_NORM}.bias"] = torch.zeros(model.config.hidden, dtype=torch.float32)
    return read


def rotation_of(model: LlmModel, recipe: LlmRecipe) -> Rotation | None:
    """The matrices that a recipe rotates by; errors of `check_rotation`."""
    if (rotate := recipe.rotate) is None:
        return None
    check_rotation(model.config, rotate)

    def blocks_of(size: int) -> torch.Tensor:
        one = random_hadamard(rotate.block or size, rotate.seed)
        made: torch.Tensor = torch.block_diag(*[one] * (size // len(one)))  # type: ignore[no-untyped-call]  # torch's own
        return made

    return Rotation(residual=blocks_of(model.config.hidden), head=blocks_of(model.config.head_dim))


# --- which linears hurt most when they alone become integers: what is left float first --------------------------------


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
    found, seen, ranges = dict[str, float](), dict[str, Extremes](), dict[str, Range]()

    def see(source: str, x: torch.Tensor) -> None:
        ranges[source] = seen.setdefault(source, Extremes()).update(x)

    stream = embedded(float_decoder(model), samples)
    with torch.inference_mode():
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


# --- rotation of the residual stream by a random Hadamard matrix, and of values by one of a head's size (QuaRot) ------
#
# What a model computes stays the same: norms are folded into the linears behind them, so that they only divide by the
# root of the mean square, which no rotation changes. Found in the vendor's files to the bit: products in float32,
# rounded to the model's dtype after each; signs of both matrices from the same seed; the residual rotation before the
# head's.

_READ_RESIDUAL = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
_FOLDED = {
    "input_layernorm": _READ_RESIDUAL[:3],
    "post_attention_layernorm": _READ_RESIDUAL[3:],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Attributes:
    residual: orthogonal [hidden, hidden], float32.
    head: orthogonal [head_dim, head_dim], float32.
    """

    residual: torch.Tensor
    head: torch.Tensor


def check_rotation(config: LlmConfig, rotate: Rotate) -> None:
    """Raises ConfigError, with a block that would do, where none of the recipe's size is built for the model's sizes.

    The tool multiplies by tables of other sizes, such as 28 and 160, which its documents do not give.
    """
    for size in (config.hidden, config.head_dim):
        block = size if rotate.block is None else rotate.block
        if block < 1 or block & (block - 1) or size % block:
            fits = math.gcd(config.hidden, config.head_dim)
            rule = "no power of two" if block == size else f"block_size {block} is no power of two that divides it"
            raise ConfigError(
                f"a rotation of {size} values is not built: {rule}.",
                key="quarot",
                hint=f"Write block_size: {fits & -fits} in a recipe, or leave quarot out (recipe.rotate in a space).",
            )


def random_hadamard(size: int, seed: int) -> torch.Tensor:
    """diag(±1) · H / √size of a power of two, the signs drawn from the seed."""
    signs = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(seed)).to(torch.float32) * 2 - 1
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)), 0)
    rotated: torch.Tensor = signs[:, None] * matrix / torch.tensor(size).sqrt()
    return rotated


def rotate_block(block: dict[str, torch.Tensor], config: LlmConfig, rotation: Rotation) -> None:
    """Norms become 1, linears what they are behind and before a rotated stream; `block` is changed."""
    for norm, names in _FOLDED.items():
        weight = block[f"{norm}.weight"]
        for name in names:
            block[f"{name}.weight"] = read_rotated(block[f"{name}.weight"] * weight, rotation)
        block[f"{norm}.weight"] = torch.ones_like(weight)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        for part in ("weight", "bias"):
            if (value := block.get(f"{name}.{part}")) is not None:
                block[f"{name}.{part}"] = (rotation.residual.T @ value.to(torch.float32)).to(value.dtype)
    # of all heads at once, with zeros between them: sums of float32 have the tool's order
    values = torch.kron(torch.eye(config.kv_heads), rotation.head)
    for part in ("weight", "bias"):
        if (value := block.get(f"self_attn.v_proj.{part}")) is not None:
            block[f"self_attn.v_proj.{part}"] = (values.T @ value.to(torch.float32)).to(value.dtype)
    value = block["self_attn.o_proj.weight"]
    outputs = torch.kron(torch.eye(config.heads), rotation.head)
    block["self_attn.o_proj.weight"] = (value.to(torch.float32) @ outputs).to(value.dtype)


def read_rotated(weight: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """A weight [N, hidden] that reads a rotated stream; an embedding table alike."""
    return (weight.to(torch.float32) @ rotation.residual).to(weight.dtype)
