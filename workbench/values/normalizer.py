"""How long a tokenizer's normalizer can make a text, from its file alone.

A normalizer is a program of whoever wrote the file: five replacements that each write 200 letters for one make 320 GB
of a letter. Which text sets it off is not seen by trying some, so the growth is bounded over all texts, from the last
step back to the first: what one character may become is what the steps behind make of all that this step writes for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.values.errors import ConfigError

MOST_GROWTH = 256
"""Characters for each one of a text, at most. Those of published tokenizers, whose tables write up to 18, reach 40."""
_MOST_STEPS, _MOST_PATTERN = 1000, 1000
_KEEPING = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt", "ByteLevel", "BertNormalizer"}
"""These write other characters by fixed tables, within a small factor [Unicode: 18 characters for U+FDFA in NFKC]."""


def check_growth(tokenizer: Mapping[str, Any], file: Path) -> None:
    """Refuse a tokenizer whose normalizer can make a text longer than `MOST_GROWTH` characters for each one.

    Args:
        tokenizer: the parsed tokenizer.json.

    Raises:
        ConfigError: it can, or it holds a step of an unknown kind or form.
    """
    try:
        grown = _growth([step for part in ("normalizer", "pre_tokenizer") for step in _steps(tokenizer.get(part))])
    except (KeyError, TypeError, ValueError, RecursionError, binascii.Error) as error:
        raise ConfigError(f"its normalizer cannot be read: {error}.", file=file, key="tokenizer") from error
    if grown > MOST_GROWTH:
        raise ConfigError(
            f"its normalizer can write {grown:.3g} characters for one of a text; {MOST_GROWTH} may be.",
            file=file,
            key="tokenizer",
            hint="Do replacements write what later ones replace? A text of a few letters would fill the memory.",
        )


def _growth(steps: list[Mapping[str, Any]]) -> float:
    """Characters that one may become at the most."""
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"it has {len(steps)} steps, more than {_MOST_STEPS}")
    special: dict[str, float] = {}  # characters that the steps behind treat otherwise than any other
    other = 1.0
    for step in reversed(steps):
        kind = step["type"]
        largest = max((other, *special.values()))

        def written(text: str) -> float:
            return sum(special.get(letter, other) for letter in text)  # noqa: B023  # called in this turn alone

        if kind in _KEEPING:
            special, other = {}, largest
        elif kind == "Precompiled":
            special, other = {}, max(1, _longest(step["precompiled_charsmap"])) * largest
        elif kind in ("Prepend", "Metaspace"):  # before every part of a text between added tokens
            before = written(step.get("prepend", step.get("replacement", "")))
            special, other = {letter: grown + before for letter, grown in special.items()}, other + before
        elif kind == "Replace":
            content = written(step["content"])
            pattern = step["pattern"]
            if "String" in pattern:
                letters = set(pattern["String"])
                share = content / max(1, len(pattern["String"]))
                special |= {letter: max(special.get(letter, other), share) for letter in letters}
            else:  # of a regular expression: at any character, and between any two where it matches nothing
                passed = largest if _matches_nothing(pattern["Regex"]) else 0.0
                special, other = {}, max(largest, content + passed)
    return max((other, *special.values()))


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for inner in part["normalizers" if "normalizers" in part else "pretokenizers"]:
            yield from _steps(inner)
    elif part["type"] in (*_KEEPING, "Precompiled", "Prepend", "Replace", "Metaspace"):
        yield part
    elif part["type"] not in _SPLITTING:
        raise ValueError(f"its step {part['type']!r:.40} is unknown")


_SPLITTING = {
    *("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "Punctuation", "Split", "Digits"),
    *("UnicodeScripts", "FixedLength"),
}
"""Pre-tokenizers that take a text apart and write nothing."""


def _matches_nothing(pattern: str) -> bool:
    """Whether a regular expression may match between two characters; True where Python reads it otherwise."""
    if len(pattern) > _MOST_PATTERN:
        return True
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError):
        return True
    return any(not match[0] for text in ("", "a", " ", "1", "- a1") for match in compiled.finditer(text))


def _longest(charsmap: str) -> int:
    """Characters of the longest text that a precompiled table of sentencepiece writes.

    [sentencepiece, builder.cc: the size of a trie in 4 bytes, the trie, then texts that end with a zero byte]
    """
    table = base64.b64decode(charsmap)
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max((len(text.decode("utf-8", "replace")) for text in texts.split(b"\0")), default=0)
