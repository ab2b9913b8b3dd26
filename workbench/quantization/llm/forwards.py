"""Ids in, logits or continuations out: what an evaluation of a language model asks for, whoever computes it.

    forward = logits_of(float_decoder(open_model(folder)), "prefill")
    for logits in forward(windows): ...                       # one window at a time
    answers = greedy(float_decoder(open_model(folder)), prompts, 32)

Every block is read once for all windows of a call, and in `greedy` once for all prompts of a step; beside it stand the
hidden states of the windows, [1, tokens, hidden] each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

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
from workbench.quantization.llm.forward import (
    Attention,
    Cache,
    Linear,
    check_ids,
    float_linear,
    norm,
    run_block,
)
from workbench.values.errors import MeasureError

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
    """The hidden states before the first block, [1, tokens, hidden] of each window."""
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
