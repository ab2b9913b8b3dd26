"""The forward pass, every step in the model's dtype and in the order in which transformers does it.

Of one block: its linears are asked for by name, so that whoever observes, quantizes or executes them does so without a
second forward pass: `linear(name, x)` returns what the linear of that name gives for `x`. Of a whole model, float or
not: ids in, logits or continuations out.

    forward = logits_of(float_decoder(open_model(folder)), "prefill")
    for logits in forward(windows): ...                       # one window at a time
    answers = greedy(float_decoder(open_model(folder)), prompts, 32)

Every block is read once for all windows of a call, and in `greedy` once for all prompts of a step; beside it stand the
hidden states of the windows, [1, tokens, hidden] each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from workbench.quantization.llm.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LlmModel,
    Tensors,
    head_name,
    read_block,
    read_tensors,
)
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.fixed_order import torch_attention
from workbench.values.errors import ConfigError, MeasureError

_CLASSES: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


@lru_cache(maxsize=8)
def rope_of(config: LlmConfig) -> tuple[torch.Tensor, float]:
    """(frequencies float32 [head_dim / 2] in radians a position, factor of cosine and sine, 1 but for 'yarn') for
    prompts within the model's positions, where 'dynamic' is the same as 'default'."""
    kind = config.rope["rope_type"]
    if kind in ("default", "dynamic"):
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
        return 1.0 / (config.rope["rope_theta"] ** exponents), 1.0
    try:
        found, attention = ROPE_INIT_FUNCTIONS[kind](_CLASSES[config.family].from_dict(dict(config.written)))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:  # of a value it cannot use
        raise ConfigError(
            f"rotary positions of kind {kind!r} cannot be computed from {config.rope}: {error!r}.", key="rope_scaling"
        ) from error
    return found.to(torch.float32), float(attention)


def rotations(config: LlmConfig, tokens: int, first: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position, computed in float32, rounded to the model's dtype.

    Args:
        first: position of the first token of every sequence [batch]; 0 for all when None.

    Returns:
        Both [tokens, head_dim], or with `first` [batch, 1, tokens, head_dim].
    """
    frequencies, factor = rope_of(config)
    positions = torch.arange(tokens, dtype=torch.float32)
    if first is not None:
        positions = (positions + first.to(torch.float32)[:, None])[:, None]
    angles = positions[..., None] * frequencies
    both = torch.cat((angles, angles), dim=-1)
    return (both.cos() * factor).to(config.dtype), (both.sin() * factor).to(config.dtype)


Linear = Callable[[str, torch.Tensor], torch.Tensor]
"""(name relative to the block, x [batch, tokens, in]) → [batch, tokens, out]."""
Cache = Callable[[str, torch.Tensor], torch.Tensor]
"""('key' after rotation, or 'value'; [batch, kv_heads, tokens, head_dim]) → what attention reads."""
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(query [batch, heads, tokens, head_dim], key, value [batch, kv_heads, tokens, head_dim]) → as query."""


def float_linear(block: Tensors) -> Linear:
    """The linears of a block as they are."""
    return lambda name, x: F.linear(x, block[f"{name}.weight"], block.get(f"{name}.bias"))


def run_block(
    config: LlmConfig,
    block: Tensors,
    hidden: torch.Tensor,
    *,
    linear: Linear | None = None,
    cache: Cache | None = None,
    epsilon: float | None = None,
    attention: Attention | None = None,
    position: torch.Tensor | None = None,
) -> torch.Tensor:
    """One decoder block over whole sequences, causal, without padding mask.

    Args:
        block: tensors by names relative to the block. A norm may have a `.bias`, which is added in float32.
        hidden: [batch, tokens, hidden] in the model's dtype.
        linear: the block's own linears when None.
        cache: what attention reads of keys and values; themselves when None.
        epsilon: of the two norms before linears; the model's when None.
        attention: torch's, over the tokens given, when None.
        position: of the first token of every sequence [batch]; 0 for all when None.
    """
    epsilon = epsilon or config.epsilon
    linear = linear or float_linear(block)
    normed = norm(block, "input_layernorm", hidden, epsilon)
    hidden = hidden + attention_half(config, block, normed, linear, cache, attention, position)
    return hidden + feed_forward(norm(block, "post_attention_layernorm", hidden, epsilon), linear)


def attention_half(
    config: LlmConfig,
    block: Tensors,
    normed: torch.Tensor,
    linear: Linear,
    cache: Cache | None = None,
    attention: Attention | None = None,
    position: torch.Tensor | None = None,
) -> torch.Tensor:
    """What the first half of a block adds to its input, from the normed input [batch, tokens, hidden]."""
    batch, tokens, _ = normed.shape
    shape = (batch, tokens, -1, config.head_dim)
    query = linear("self_attn.q_proj", normed).view(shape)
    key = linear("self_attn.k_proj", normed).view(shape)
    if config.qk_norm:
        query = norm(block, "self_attn.q_norm", query, config.epsilon)
        key = norm(block, "self_attn.k_norm", key, config.epsilon)
    value = linear("self_attn.v_proj", normed).view(shape).transpose(1, 2)
    cos, sin = rotations(config, tokens, position)
    query, key = _rotated(query.transpose(1, 2), cos, sin), _rotated(key.transpose(1, 2), cos, sin)
    if cache is not None:
        key, value = cache("key", key), cache("value", value)
    attended = (attention or torch_attention)(query, key, value)
    attended = attended.transpose(1, 2).reshape(batch, tokens, -1).contiguous()
    return linear("self_attn.o_proj", attended)


def feed_forward(normed: torch.Tensor, linear: Linear) -> torch.Tensor:
    """What the second half adds, from its normed input."""
    gated = F.silu(linear("mlp.gate_proj", normed)) * linear("mlp.up_proj", normed)
    return linear("mlp.down_proj", gated)


def norm(block: Tensors, name: str, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMSNorm: x / rms(x) in float32, rounded to the dtype of x, times the weight; plus a bias where there is one."""
    wide = x.to(torch.float32)
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    out = block[f"{name}.weight"] * scaled.to(x.dtype)
    bias = block.get(f"{name}.bias")
    return out if bias is None else (out + bias).to(x.dtype)


def check_ids(config: LlmConfig, samples: Sequence[torch.Tensor]) -> None:
    """Raises ConfigError for a sample that has more tokens than the model's context, or ids that it does not know."""
    for number, ids in enumerate(samples):
        if ids.shape[-1] > config.context:
            raise ConfigError(
                f"sample {number} has {ids.shape[-1]} tokens, the model's context is {config.context}.",
                hint="Shorten the text.",
            )
        if int(ids.max()) >= config.vocabulary:
            raise ConfigError(
                f"token {int(ids.max())} of sample {number} is beyond the vocabulary of {config.vocabulary}.",
                hint="The tokenizer belongs to another model.",
            )


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos) + (turned * sin)


# --- ids in, logits or continuations out -----------------------------------------------------------------------------


Forward = Callable[[Sequence[torch.Tensor]], Iterator[torch.Tensor]]
"""Ids of windows, each [1, tokens] → logits of each, [1, tokens, vocabulary], in the model's dtype, in their order and
one at a time in memory."""
Stage = Literal["prefill", "decode"]
"""How a server would compute tokens. 'decode', one after another: W8A8_MIX is static, and attention reads keys and
values out of the int8 cache. 'prefill', a whole prompt at once: W8A8_MIX is dynamic by token, and attention reads keys
and values before they are rounded into the cache, so a quantized cache does not show (w8a8_pdmix.py,
attention_v1.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBlock:
    """Attributes:
    tensors: norms, by names relative to the block.
    kept: what attention reads later of keys [batch, kv_heads, tokens, head_dim] or values that went into the cache.
    """

    tensors: Tensors
    linear: Linear
    kept: Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A model as the steps of its computation.

    Attributes:
        embedding: read when a call begins: [vocabulary, hidden].
        head: likewise: final norm and output projection by their full names.
        block: (index, stage) → how that block computes.
    """

    config: LlmConfig
    embedding: Callable[[], torch.Tensor]
    head: Callable[[], Tensors]
    block: Callable[[int, Stage], RunningBlock]


def float_decoder(model: LlmModel) -> Decoder:
    """The float model as it is on disk, every step in its own dtype; one block is in memory at a time.

    Deterministic for one number of threads and one version of torch.
    """

    def embedding() -> torch.Tensor:
        return read_tensors(model, [f"{EMBEDDING}.weight"])[f"{EMBEDDING}.weight"]

    def head() -> Tensors:
        read = read_tensors(model, [f"{FINAL_NORM}.weight", head_name(model)])
        return {**read, f"{HEAD}.weight": read[head_name(model)]}

    def block(index: int, stage: Stage) -> RunningBlock:
        tensors = read_block(model, index)
        return RunningBlock(tensors=tensors, linear=float_linear(tensors), kept=lambda _, x: x)

    return Decoder(config=model.config, embedding=embedding, head=head, block=block)


def logits_of(decoder: Decoder, stage: Stage) -> Forward:
    """Logits of every token of windows.

    In stage 'decode' every token is computed as if it had come alone: attention reads what the cache keeps of it and of
    all before it.

    Raises:
        ConfigError: (when logits are asked for) a window is longer than the context, an id is beyond the vocabulary, or
            a weight cannot be read or used.
        MeasureError: a block gives values that are NaN or infinite.
    """

    def forward(windows: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        hidden = embedded(decoder, windows)
        for index, number in through(decoder, hidden, stage):
            _check_finite(hidden[number], index, f"window {number}")
        yield from head_logits(decoder, hidden)

    return forward


def embedded(decoder: Decoder, windows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The hidden states before the first block, [1, tokens, hidden] of each window; errors of `check_ids`."""
    check_ids(decoder.config, windows)
    with torch.inference_mode():
        embedding = decoder.embedding()
        return [F.embedding(ids, embedding) for ids in windows]


def through(decoder: Decoder, hidden: list[torch.Tensor], stage: Stage) -> Iterator[tuple[int, int]]:
    """Every window through every block, in place; (block, window) behind each step. One block is in memory."""
    for index in range(decoder.config.layers):
        block = decoder.block(index, stage)
        cache = block.kept if stage == "decode" else None
        for number, x in enumerate(hidden):
            with torch.inference_mode():  # not around the yield: the mode would be the caller's too
                hidden[number] = _run(decoder, block, x, cache=cache)
            yield index, number


def head_logits(decoder: Decoder, hidden: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """[1, tokens, vocabulary] of what the last block gave of each window, one at a time."""
    head = decoder.head()
    for x in hidden:
        with torch.inference_mode():  # likewise
            given = _logits(decoder.config, head, x)
        yield given


def greedy(
    decoder: Decoder,
    prompts: Sequence[torch.Tensor],
    tokens: int,
    *,
    given: Sequence[torch.Tensor] | None = None,
    seen: Callable[[int, int, torch.Tensor], None] = lambda prompt, step, logits: None,
) -> list[torch.Tensor]:
    """The most probable continuation of every prompt, [tokens]; of equal logits the lowest id.

    A prompt is computed in stage 'prefill', every further token in stage 'decode' on the kept keys and values. All
    prompts go step by step together, so that a block serves them all while it is in memory.

    Args:
        prompts: ids, each [1, tokens]; with its continuation none is longer than the context.
        tokens: of each continuation.
        given: go on with these ids in place of the most probable, [tokens] for every prompt.
        seen: told the number of a prompt, of a step, and the logits there, [vocabulary].
    """
    config = decoder.config
    check_ids(config, prompts)
    found: list[list[int]] = [[] for _ in prompts]
    nothing = torch.empty(1, config.kv_heads, 0, config.head_dim, dtype=config.dtype)
    stores: list[list[tuple[torch.Tensor, ...]]] = [[(nothing, nothing) for _ in prompts] for _ in range(config.layers)]
    embedding, head, position = decoder.embedding(), decoder.head(), None
    parts = [(ids, [number]) for number, ids in enumerate(prompts)]
    with torch.inference_mode():
        for step in range(tokens):
            hidden = [F.embedding(ids, embedding) for ids, _ in parts]
            for index, ours in enumerate(stores):
                block = decoder.block(index, "decode" if step else "prefill")
                for number, (_, rows) in enumerate(parts):
                    attention = _storing(block.kept, ours, rows, prefill=not step)
                    hidden[number] = _run(decoder, block, hidden[number], attention=attention, position=position)
                    where = f"token {step} behind the prompts" if step else f"prompt {number}"
                    _check_finite(hidden[number], index, where)
            said = _logits(config, head, torch.cat([x[:, -1:] for x in hidden]))[:, 0]
            for number, (logits, token) in enumerate(zip(said, said.argmax(-1).tolist(), strict=True)):
                seen(number, step, logits)
                found[number].append(token if given is None else int(given[number][step]))
            parts = [(torch.tensor([ids[-1:] for ids in found]), list(range(len(prompts))))]
            position = torch.tensor([ids.shape[1] + step for ids in prompts])
    return [torch.tensor(ids, dtype=torch.int64) for ids in found]


def _storing(
    kept: Cache,
    stores: list[tuple[torch.Tensor, ...]],
    rows: Sequence[int],
    *,
    prefill: bool,
) -> Attention:
    """Attention that puts keys and values of prompts behind those in `stores`; a prompt's own reads them as they came.

    Args:
        stores: of each prompt keys and values, [1, kv_heads, tokens, head_dim].
        rows: which prompts the batch is of.
    """

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        new, found = (kept("key", key), kept("value", value)), []
        for row, number in enumerate(rows):
            part = slice(row, row + 1)
            stores[number] = tuple(torch.cat((old, x[part]), 2) for old, x in zip(stores[number], new, strict=True))
            found.append(torch_attention(query[part], *((key, value) if prefill else stores[number])))
        return torch.cat(found)

    return attention


def _run(decoder: Decoder, block: RunningBlock, x: torch.Tensor, **how: Any) -> torch.Tensor:
    return run_block(decoder.config, block.tensors, x, linear=block.linear, **how)


def _logits(config: LlmConfig, head: Tensors, x: torch.Tensor) -> torch.Tensor:
    return F.linear(norm(head, FINAL_NORM, x, config.epsilon), head[f"{HEAD}.weight"])


def _check_finite(hidden: torch.Tensor, block: int, which: str) -> None:
    if not bool(torch.isfinite(hidden).all()):
        raise MeasureError(
            f"block {block} gives values that are NaN or infinite for {which}; {hidden.dtype} does not hold them. "
            "Compare with the float model: a smoothing or a scale may be wrong."
        )
