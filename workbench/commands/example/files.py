"""The example's files: CSV, JSONL, labels and a character tokenizer. Equal documents give equal bytes."""

from __future__ import annotations

import collections
import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel

from workbench.commands.example.texts import Document

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def write_classification(documents: Iterable[Document], to: Path) -> None:
    """CSV with the columns `text,label`; a label is its name."""
    with to.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("text", "label"))
        writer.writerows((document.text, document.label) for document in documents)


def write_ner(documents: Iterable[Document], to: Path) -> None:
    """JSONL, one `{"tokens": [characters], "tags": [BIO tags]}` per line."""
    with to.open("w", encoding="utf-8", newline="\n") as stream:
        for document in documents:
            line = {"tokens": list(document.text), "tags": list(document.tags)}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_labels(labels: Sequence[str], to: Path) -> None:
    """JSON list; a label's index is its class."""
    to.write_text(json.dumps(list(labels), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def character_tokenizer(texts: Iterable[str], *, minimum_count: int = 2) -> Tokenizer:
    """A tokenizer with one token per character, wrapped in [CLS] … [SEP]; no truncation, no padding.

    Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then characters by falling count, ties by code point. Full-width digits
    and punctuation count as their half-width forms (NFKC). White space is a character like any other, so that a
    text of n characters has n + 2 tokens and tags stay aligned.

    Args:
        minimum_count: characters seen less often become [UNK].
    """
    normalizer = normalizers.NFKC()
    counts = collections.Counter(c for text in texts for c in normalizer.normalize_str(text))
    kept = sorted((c for c, n in counts.items() if n >= minimum_count), key=lambda c: (-counts[c], c))
    vocabulary = {token: i for i, token in enumerate((PAD, UNKNOWN, START, END, *kept))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, vocabulary[token]) for token in (START, END)],
    )
    tokenizer.add_special_tokens([PAD, UNKNOWN, START, END])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, to: Path) -> None:
    to.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
