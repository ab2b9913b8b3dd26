"""Ids in, logits out: what judges of a language model ask for, whoever computes it.

A `Forward` is given windows of ids, each [1, tokens], and yields the logits of each, [1, tokens, vocabulary], in their
order and one at a time, so that no more than one window's logits are in memory. Every block is read once for all
windows of a call; beside it stand the hidden states of the windows, [1, tokens, hidden] each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from workbench.quantization.llm.checkpoint import FINAL_NORM, LlmModel, head_name, read_block, read_tensors
from workbench.quantization.llm.forward import check_lengths, embed, logits, run_block
from workbench.quantization.llm.rope import rope_of

Forward = Callable[[Sequence[torch.Tensor]], Iterator[torch.Tensor]]
"""Ids of windows, each [1, tokens] → logits of each, [1, tokens, vocabulary], in the model's dtype."""


def float_logits(model: LlmModel, *, keep: bool = False) -> Forward:
    """The float model as it is on disk, every step in its own dtype.

    Deterministic for one number of threads and one version of torch.

    Args:
        keep: blocks, embedding and head stay in memory after the first call, for quick further calls; otherwise one
            block is in memory at a time.

    Raises:
        ConfigError: (when logits are asked for) a window is longer than the context, an id is beyond the vocabulary, or
            a weight cannot be read or is NaN or infinite.
    """
    rope = rope_of(model.config)
    blocks: dict[int, dict[str, torch.Tensor]] = {}

    def block(index: int) -> dict[str, torch.Tensor]:
        if not keep:
            return read_block(model, index)
        if index not in blocks:
            blocks[index] = read_block(model, index)
        return blocks[index]

    def forward(windows: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        check_lengths(model, windows)
        with torch.inference_mode():
            hidden = embed(model, windows)
            for index in range(model.config.layers):
                tensors = block(index)
                hidden = [run_block(model.config, rope, tensors, x) for x in hidden]
        last = read_tensors(model, [f"{FINAL_NORM}.weight", head_name(model)])
        for number in range(len(hidden)):
            with torch.inference_mode():  # not around the yield: the mode would be the caller's too
                given = logits(model, [hidden[number]], last)[0]
            yield given

    return forward
