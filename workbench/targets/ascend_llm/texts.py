"""Texts as token ids by the model's own tokenizer: the vendor's files to calibrate with (msmodelslim.md §7.1), and what
models are evaluated on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from workbench.quantization.llm.config import LlmConfig
from workbench.values.documents.input_files import is_file, open_lines, read_text
from workbench.values.documents.json_reader import parse_json, read_json
from workbench.values.documents.templates import rendered_chat
from workbench.values.errors import ConfigError
from workbench.values.preprocess import load_tokenizer

TEXT_KEYS = ("inputs_pretokenized", "text", "prompt")
"""Of a line's text: msModelSlim's own (msmodelslim.md §7.1), and what other data sets call it."""
_CHAT = "messages"
MOST_TEXTS = 10_000
_MOST_BYTES = 1 << 28
_MOST_EVALUATED_BYTES = 1 << 24
"""Of a file to evaluate on: four million tokens or so, days of work on a processor. A tokenizer needs many times a
text's size."""
_OWN_TEMPLATE = ("LlamaTokenizer", "LlamaTokenizerFast")
"""Classes that put tokens around a text as tokenizer_config.json says, whatever tokenizer.json has.

So it is in transformers 4.57, which the vendor's tool runs with; other classes leave `add_bos_token` without effect.
"""


def read_texts(path: Path, folder: Path) -> list[str]:
    """The texts of a `.jsonl` file (the first of `TEXT_KEYS` that a line has) or of a `.json` list.

    Args:
        folder: the model's, whose chat template writes a line's `messages` as one text.
    """
    if path.suffix not in (".jsonl", ".json"):
        raise ConfigError("is neither .jsonl nor .json.", file=path)
    return _items(path, (*TEXT_KEYS, _CHAT), _MOST_BYTES, folder)


def read_documents(path: Path) -> list[str]:
    """The texts of a file: of `.jsonl` (key `text` or `inputs_pretokenized`) and of a `.json` list one each, of any
    other file its whole content."""
    if path.suffix in (".json", ".jsonl"):
        return _items(path, ("text", TEXT_KEYS[0]), _MOST_EVALUATED_BYTES)
    text = read_text(path, limit_bytes=_MOST_EVALUATED_BYTES)
    if not text.strip():
        raise ConfigError("holds no text.", file=path)
    return [text]


def _items(path: Path, keys: tuple[str, ...], limit_bytes: int, folder: Path | None = None) -> list[str]:
    """Texts of JSON lines under the first of these keys that a line has, or of a list."""
    texts: list[object] = []
    if path.suffix == ".json":
        found = read_json(path, limit_bytes=limit_bytes)
        if not isinstance(found, list):
            raise ConfigError("expected a list of texts.", file=path)
        texts = list(found)
    else:
        with open_lines(path, limit_bytes=limit_bytes) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                value = parse_json(line, file=path, line=number)
                key = next((key for key in keys if isinstance(value, dict) and key in value), None)
                if key is None:
                    rule = f"has no key {' or '.join(map(repr, keys))}."
                    raise ConfigError(rule, file=path, line=number, hint=_key_hint(value))
                texts.append(value[key])
    if not texts or len(texts) > MOST_TEXTS:
        raise ConfigError(f"holds {len(texts)} texts; from 1 to {MOST_TEXTS} are read.", file=path)
    if folder is not None:
        texts = [_chat(each, n, path, folder) if isinstance(each, list) else each for n, each in enumerate(texts)]
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            said = f"item {number} is {repr(text)[:80]}, not a text."
            raise ConfigError(said, file=path, hint=_key_hint(text))
    return [str(text) for text in texts]


def _key_hint(line: object) -> str | None:
    if isinstance(line, dict) and _CHAT in line:
        return f"Write the chat as one text, as the model's chat template gives it, under {TEXT_KEYS[0]!r}."
    return None


def _chat(messages: list[object], number: int, path: Path, folder: Path) -> str:
    """A conversation as the model's own chat template writes it."""
    file = folder / "chat_template.jinja"
    template: object = read_text(file, limit_bytes=_MOST_BYTES) if is_file(file) else None
    if template is None:
        file = folder / "tokenizer_config.json"
        template = _config(folder).get("chat_template")
    if not isinstance(template, str):
        hint = f"Write the chat as one text, under {TEXT_KEYS[0]!r}."
        raise ConfigError(f"item {number} is a chat, and {folder} has no chat template.", file=path, hint=hint)
    try:
        return rendered_chat(template, messages)
    except ValueError as error:
        raise ConfigError(f"does not take item {number} of {path}: {error}.", file=file) from error


def _config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, or nothing where there is none."""
    file = folder / "tokenizer_config.json"
    try:
        # transformers writes "no limit" as an integer of 100 bits, which our strict JSON refuses
        said = json.loads(read_text(file, limit_bytes=_MOST_BYTES), parse_int=float) if is_file(file) else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid JSON: {error}.", file=file) from error
    if not isinstance(said, dict):
        raise ConfigError("holds no JSON object.", file=file)
    return said


def read_tokenizer(folder: Path, config: LlmConfig) -> Tokenizer:
    """The model's tokenizer.json, without padding and truncation, with what its class puts around a text."""
    file = folder / "tokenizer.json"
    tokenizer: Tokenizer = load_tokenizer(file)
    if (template := _template(tokenizer, folder)) is not None:
        tokenizer.post_processor = template
    tokenizer.no_padding()
    tokenizer.no_truncation()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocabulary:
        raise ConfigError(
            f"has the token {largest}, the model's vocabulary has {config.vocabulary}.",
            file=file,
            hint="The tokenizer belongs to another model.",
        )
    return tokenizer


def calibration_samples(texts: Sequence[str], tokenizer: Tokenizer, folder: Path) -> list[torch.Tensor]:
    """One sample for each text, [1, tokens], with the tokenizer's special tokens."""
    samples = [tokenizer.encode(text, add_special_tokens=True).ids for text in texts]
    for number, ids in enumerate(samples):
        if not ids:
            raise ConfigError(f"gives text {number} no token.", file=folder / "tokenizer.json")
    return [torch.tensor([ids]) for ids in samples]


def padded_samples(texts: Sequence[str], tokenizer: Tokenizer, batch: int) -> list[torch.Tensor]:
    """Batches of texts [batch, tokens] without special tokens, padded on the right with token 0 and unmasked.

    So the padding is part of what is observed, as in the vendor's tool (msmodelslim.md §9).
    """
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    samples = []
    for start in range(0, len(ids), batch):
        part = ids[start : start + batch]
        longest = max(map(len, part))
        if longest == 0:
            raise ConfigError(f"texts {start} to {start + len(part) - 1} have no token.")
        samples.append(torch.tensor([each + [0] * (longest - len(each)) for each in part]))
    return samples


def encoder_of(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Text → ids, begun as the model's own tokenizer begins a text, and not ended: more is to follow."""
    plain, dressed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    begin = dressed[: next((n for n in range(len(dressed)) if dressed[n : n + len(plain)] == plain), 0)]
    return lambda text: [*begin, *tokenizer.encode(text, add_special_tokens=False).ids]


def _template(tokenizer: Tokenizer, folder: Path) -> TemplateProcessing | None:
    """What goes around a text, where the tokenizer's class says it rather than tokenizer.json."""
    said = _config(folder)
    if said.get("tokenizer_class") not in _OWN_TEMPLATE:
        return None
    pieces, numbers = ["$A"], {}
    for key, default, token in (("add_bos_token", True, "bos_token"), ("add_eos_token", False, "eos_token")):
        name = said.get(token)
        name = name.get("content") if isinstance(name, dict) else name
        number = tokenizer.token_to_id(name) if isinstance(name, str) else None
        if said.get(key, default) and name is not None and number is not None:
            pieces.insert(0 if token == "bos_token" else len(pieces), name)
            numbers[name] = number
    return TemplateProcessing(single=pieces, special_tokens=list(numbers.items()))
