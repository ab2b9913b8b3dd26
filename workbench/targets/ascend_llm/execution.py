"""A written checkpoint, run on the processor from its files with exact integer sums and the device's order of steps.

What is exact: integers, their sums, and every rounding of scales and factors (`arithmetic`). What is this machine's:
norms, rotations, attention, activations and products of floats, which follow transformers' order in the model's dtype;
how a card adds up the terms of a float sum is not documented. Nothing here is measured on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
import torch.nn.functional as F

from workbench.quantization.llm.forward import float_linear
from workbench.quantization.llm.forwards import Decoder, Forward, RunningBlock, Stage, logits_of
from workbench.quantization.llm.integer_products import integer_product
from workbench.quantization.llm.quantized import SOURCES
from workbench.quantization.llm.rope import rope_of
from workbench.targets.ascend_llm.arithmetic import (
    cached,
    device_factors,
    dynamic_integers,
    dynamic_output,
    static_integers,
    static_output,
)
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.served_block import (
    ServedBlock,
    ServedLinear,
    check_tied,
    read_served_block,
    read_served_embedding,
    read_served_head,
)

_LAST_READERS = {source: name for name, source in SOURCES.items()}
"""Tensor → the last linear of a block that reads it."""


def served_logits(served: Served, *, stage: Stage = "decode", keep: bool = False) -> Forward:
    """Logits of windows by a checkpoint.

    Deterministic for one number of threads and one version of torch; the integer sums on any machine.

    Args:
        stage: whose arithmetic every token of a window takes. 'decode', that of generated tokens: W8A8_MIX is static,
            and attention reads keys and values out of the int8 cache. 'prefill', that of a fresh prompt: W8A8_MIX is
            dynamic by token, and attention reads keys and values before they are rounded into the cache, so a
            quantized cache does not show (w8a8_pdmix.py, attention_v1.py).
        keep: blocks, embedding and head stay in memory after the first call, for quick further calls; otherwise one
            block is in memory at a time.

    Raises:
        ConfigError: (when logits are asked for) a window is longer than the context, or the checkpoint holds values
            that an engine would compute wrongly with (`read_served_block`).
        MeasureError: a block gives values that are NaN or infinite.
    """
    return logits_of(served_decoder(served, keep=keep), stage)


def served_decoder(served: Served, *, keep: bool = False) -> Decoder:
    """A checkpoint as the steps of its computation, for `logits_of` and `greedy`.

    Args:
        keep: as for `served_logits`.
    """

    def block(index: int) -> Callable[[Stage], RunningBlock]:
        return running_block(read_served_block(served, index), served.config.dtype)

    def embedding() -> torch.Tensor:
        return read_served_embedding(served)

    def head() -> dict[str, torch.Tensor]:
        checked()
        return read_served_head(served)

    checked = lru_cache(partial(check_tied, served))
    held = lru_cache(maxsize=None)(block) if keep else block
    return Decoder(
        config=served.config,
        rope=rope_of(served.config),
        embedding=lru_cache(embedding) if keep else embedding,
        head=lru_cache(head) if keep else head,
        block=lambda index, stage: held(index)(stage),
    )


def running_block(block: ServedBlock, dtype: torch.dtype) -> Callable[[Stage], RunningBlock]:
    """How a block computes, by stage; linears that read one tensor share its integers."""
    floats = float_linear(block.tensors)
    meant = {name: _meant(linear) for name, linear in block.linears.items() if linear.type == "W8A16"}
    latest: dict[tuple[str, bool], tuple[torch.Tensor, _Integers]] = {}

    def linear(stage: Stage, name: str, x: torch.Tensor) -> torch.Tensor:
        ours = block.linears.get(name)
        if ours is None:
            return floats(name, x)
        if ours.type == "W8A16":
            return F.linear(x, meant[name], ours.bias)
        static = ours.type == "W8A8" or (ours.type == "W8A8_MIX" and stage == "decode")
        key = SOURCES[name], static
        seen, integers = latest.pop(key, (None, None))
        if integers is None or seen is not x:
            integers = _integers(ours, x, static)
        if _LAST_READERS[SOURCES[name]] != name:  # nothing of a window stays with a block that stays in memory
            latest[key] = (x, integers)
        return _output(ours, integers, dtype).view(*x.shape[:-1], -1)

    def kept(what: str, x: torch.Tensor) -> torch.Tensor:
        return cached(x, block.cache[what]) if what in block.cache else x

    return lambda stage: RunningBlock(tensors=block.tensors, linear=partial(linear, stage), kept=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Integers:
    """An input as integers: [tokens, K]; `scales` of its tokens [tokens, 1], None for a static range."""

    values: torch.Tensor
    scales: torch.Tensor | None


def _integers(linear: ServedLinear, x: torch.Tensor, static: bool) -> _Integers:
    rows = x.reshape(-1, x.shape[-1])
    if static:
        assert linear.input is not None  # a static type has one
        return _Integers(values=static_integers(rows, linear.input.scale, linear.input.offset), scales=None)
    values, scales = dynamic_integers(rows)
    return _Integers(values=values, scales=scales)


def _output(linear: ServedLinear, given: _Integers, dtype: torch.dtype) -> torch.Tensor:
    """[tokens, N] in the model's dtype. The float bias of a static linear is in its integer bias."""
    sums = integer_product(given.values, linear.weight)
    if given.scales is None:
        assert linear.integer_bias is not None  # a static type has it,
        assert linear.factors is not None  # and this
        return static_output(sums.add_(linear.integer_bias), device_factors(linear.factors, dtype), dtype)
    assert linear.scale is not None  # so has a dynamic one
    return dynamic_output(sums, linear.scale, given.scales, linear.bias, dtype)


def _meant(linear: ServedLinear) -> torch.Tensor:
    """The weight of W8A16 in the model's dtype, as the kernel widens it before a float product."""
    assert linear.scale is not None  # the headers say so
    return linear.weight.to(linear.scale.dtype) * linear.scale[:, None]
