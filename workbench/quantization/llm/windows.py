"""Texts as windows of tokens: every token predicted at most once, the overlap of neighbours read as context alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workbench.quantization.llm.config import LlmConfig
from workbench.values.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """What a model is given at once.

    Attributes:
        ids: [1, tokens].
        first: the place of the first token whose prediction counts, at least 1; those before it are context.
    """

    ids: torch.Tensor
    first: int

    @property
    def predictions(self) -> int:
        """How many tokens' predictions count."""
        return self.ids.shape[-1] - self.first

    @property
    def targets(self) -> torch.Tensor:
        """[predictions] the tokens that are to be predicted, from the logits of the places before them."""
        return self.ids[0, self.first :]


def windows_of(text: torch.Tensor, *, window: int, stride: int) -> list[Window]:
    """A text's windows, each `stride` tokens behind the one before; the last holds what is left.

    With a stride below the window every token but the text's first is predicted exactly once, and at least
    `window - stride` tokens stand before it wherever the text has them. With a stride of the window nothing overlaps,
    as perplexities of quantized models are usually stated; the first token of each window is then predicted nowhere.

    Args:
        text: ids [1, tokens]; one of less than 2 tokens has no window.

    Raises:
        ConfigError: a window below 2 tokens, or a stride that is not from 1 to the window.
    """
    if window < 2:
        raise ConfigError(f"a window of {window} tokens predicts nothing.", key="window", hint="Give at least 2.")
    if not 1 <= stride <= window:
        raise ConfigError(
            f"a stride of {stride} leaves tokens out or never moves.",
            key="stride",
            hint=f"Give 1 to {window}, the window.",
        )
    tokens = text.shape[-1]
    found: list[Window] = []
    predicted = 1
    for start in range(0, tokens, stride):
        end = min(start + window, tokens)
        first = max(predicted - start, 1)
        if start + first < end:
            found.append(Window(ids=text[:, start:end], first=first))
        predicted = end
        if end == tokens:
            break
    return found


def all_windows(
    texts: Sequence[torch.Tensor],
    config: LlmConfig,
    *,
    window: int = 512,
    stride: int = 512,
    most: int | None = None,
    seed: int = 0,
) -> list[Window]:
    """The windows of several texts, none across two of them, in an order drawn by the seed.

    The order is random so that the first of them stand for all, which tests after some of the windows rely on.

    Args:
        texts: ids [1, tokens] of each.
        most: no more windows than the first so many of the texts; all when None.

    Raises:
        ConfigError: as `windows_of`, a window beyond the model's context, or no text of 2 tokens.
    """
    if window > config.context:
        raise ConfigError(
            f"a window of {window} tokens is longer than the model's context of {config.context}.", key="window"
        )
    found = [each for text in texts for each in windows_of(text, window=window, stride=stride)][:most]
    if not found:
        raise ConfigError("the texts have less than 2 tokens: nothing is predicted.", key="text")
    return [found[place] for place in np.random.default_rng(seed).permutation(len(found))]
