"""Texts of exactly so many tokens, made of a dataset's own: joined until they are long enough, cut where a token ends.

A figure for length 512 is one for 512 tokens; a short text padded to 512 would cost a service with length bins nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.values.errors import ConfigError
from workbench.values.preprocess import Preprocessor, Text, encoder


def texts_of_length(preprocessor: Preprocessor, texts: Sequence[Text], length: int, count: int) -> list[Text]:
    """`count` texts, fewer where joined ones seldom come out right; each begins at another one of `texts`.

    Every one has `length` tokens, special tokens included, by this very tokenizer. Deterministic.

    Raises:
        ConfigError: the model takes no such length, or no text comes out right.
    """
    if not 1 <= length <= preprocessor.max_length:
        raise ConfigError(
            f"{length} tokens are outside 1 to {preprocessor.max_length}, the max_length of the dataset.",
            key="--length",
            hint="Choose a shorter length, or raise max_length where the model allows it.",
        )
    if not texts:
        raise ConfigError("there are no texts.", key="--length")
    whole = encoder(preprocessor)
    cutting = encoder(replace(preprocessor, max_length=length, bins=(length,)))
    found: list[Text] = []
    for first in range(min(count, len(texts))):
        joined: Text = texts[first]
        for further in range(1, length + 1):
            if len(cutting(joined)[0].ids) == length:
                break
            joined = _joined(joined, texts[(first + further) % len(texts)])
        encoded, tokens = cutting(joined)
        if isinstance(joined, str):
            cut: Text = joined[: max((end for _, end in tokens.offsets), default=0)]
        else:
            cut = tuple(joined[: max(encoded.words, default=-1) + 1])
        if len(whole(cut)[0].ids) == length:
            found.append(cut)
    if not found:
        raise ConfigError(
            f"no text of exactly {length} tokens could be made of {len(texts)}.",
            key="--length",
            hint="Words may have more tokens than one, and some lengths cannot be met: choose another one.",
        )
    return found


def _joined(one: Text, other: Text) -> Text:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one} {other}"
    return (*one, *other)
