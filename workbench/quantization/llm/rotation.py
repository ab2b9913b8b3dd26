"""Rotation of the residual stream by a random Hadamard matrix, and of values by one of a head's size (QuaRot).

What a model computes stays the same: norms are folded into the linears behind them, so that they only divide by the
root of the mean square, which no rotation changes. Found in the vendor's files to the bit: products in float32, rounded
to the model's dtype after each; signs of both matrices from the same seed; the residual rotation before the head's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.recipe import Rotate
from workbench.values.errors import ConfigError

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


def rotation_of(config: LlmConfig, rotate: Rotate) -> Rotation:
    """The matrices of a model; errors of `check_rotation`."""
    check_rotation(config, rotate)
    return Rotation(residual=_blocks(config.hidden, rotate), head=_blocks(config.head_dim, rotate))


def _blocks(size: int, rotate: Rotate) -> torch.Tensor:
    one = random_hadamard(rotate.block or size, rotate.seed)
    made: torch.Tensor = torch.block_diag(*[one] * (size // len(one)))  # type: ignore[no-untyped-call]  # torch's own
    return made


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
