"""What models are judged on, as token ids: documents, prompts, and an encoder for questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer

from workbench.targets.ascend_llm.texts import MOST_TEXTS, TEXT_KEY
from workbench.values.documents.input_files import open_lines, read_text
from workbench.values.documents.json_reader import parse_json, read_json
from workbench.values.errors import ConfigError

_MOST_BYTES = 1 << 24
"""Of a file: four million tokens or so, days of work on a processor. A tokenizer needs many times a text's size."""


def encoder_of(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Text → ids, begun as the model's own tokenizer begins a text, and not ended: more is to follow.

    Args:
        tokenizer: of `read_tokenizer`.
    """
    plain, dressed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    begin = dressed[: next((n for n in range(len(dressed)) if dressed[n : n + len(plain)] == plain), 0)]
    return lambda text: [*begin, *tokenizer.encode(text, add_special_tokens=False).ids]


def read_documents(path: Path) -> list[str]:
    """The texts of a file: of `.jsonl` (key `text` or `inputs_pretokenized`) and of a `.json` list one each, of any
    other file its whole content.

    Raises:
        ConfigError: no such file, too large, not UTF-8, or an item without a text.
    """
    if path.suffix in (".json", ".jsonl"):
        return _items(path, ("text", TEXT_KEY))
    text = read_text(path, limit_bytes=_MOST_BYTES)
    if not text.strip():
        raise ConfigError("holds no text.", file=path)
    return [text]


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file: of `.jsonl` (key `prompt`, `text` or `inputs_pretokenized`) and of a `.json` list one
    each, of any other file one for each line. They are given as they are, without a chat template.

    Raises:
        ConfigError: as `read_documents`.
    """
    if path.suffix in (".json", ".jsonl"):
        return _items(path, ("prompt", "text", TEXT_KEY))
    lines = [line for line in read_text(path, limit_bytes=_MOST_BYTES).splitlines() if line.strip()]
    if not lines or len(lines) > MOST_TEXTS:
        raise ConfigError(f"holds {len(lines)} prompts; from 1 to {MOST_TEXTS} are read.", file=path)
    return lines


def prompt_ids(
    prompts: list[str], encode: Callable[[str], list[int]], *, context: int, tokens: int
) -> list[torch.Tensor]:
    """[1, tokens] of each prompt.

    Raises:
        ConfigError: one has no token, or leaves no room for an answer in the model's context.
    """
    found = []
    for number, prompt in enumerate(prompts):
        ids = encode(prompt)
        if not ids:
            raise ConfigError(f"prompt {number} has no token.", key="--prompts")
        if len(ids) + tokens > context:
            raise ConfigError(
                f"prompt {number} has {len(ids)} tokens and is to get {tokens} more; the model's context is {context}.",
                key="--prompts",
            )
        found.append(torch.tensor([ids]))
    return found


def _items(path: Path, keys: tuple[str, ...]) -> list[str]:
    """Texts of JSON lines under the first of these keys that a line has, or of a list."""
    found: list[object] = []
    if path.suffix == ".json":
        listed = read_json(path, limit_bytes=_MOST_BYTES)
        if not isinstance(listed, list):
            raise ConfigError("expected a list of texts.", file=path)
        found = list(listed)
    else:
        with open_lines(path, limit_bytes=_MOST_BYTES) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                value = parse_json(line, file=path, line=number)
                key = next((key for key in keys if isinstance(value, dict) and key in value), None)
                if key is None:
                    raise ConfigError(f"has none of the keys {', '.join(keys)}.", file=path, line=number)
                found.append(value[key])
    if not found or len(found) > MOST_TEXTS:
        raise ConfigError(f"holds {len(found)} texts; from 1 to {MOST_TEXTS} are read.", file=path)
    for number, text in enumerate(found):
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"item {number} is {text!r}, no text.", file=path)
    return [str(text) for text in found]
