"""The example's texts from a seed, and the files and the tokenizer made of them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

from workbench.commands.example.build import character_tokenizer, write_tokenizer
from workbench.commands.example.texts import ENTITIES, TAGS, documents

MANY = tuple(documents(3000, seed=7))


def test_tags_are_valid_bio_of_every_entity_and_no_mark_of_a_template_is_left() -> None:
    for document in MANY:
        before = "O"
        for tag in document.tags:
            assert tag in TAGS
            assert not tag.startswith("I-") or before[2:] == tag[2:], document
            before = tag
    assert {tag[2:] for document in MANY for tag in document.tags if tag != "O"} == set(ENTITIES)
    assert not [d.text for d in MANY if set(d.text) & set("{}[]|")]
    # one character is one token, so that tags stay aligned whatever the tokenizer normalizes
    assert not [c for d in MANY for c in set(d.text) if len(unicodedata.normalize("NFKC", c)) != 1]
    assert len({d.label for d in MANY if "借款合同" in d.text}) >= 3, "classes overlap in what they say"
    assert MANY[:50] == tuple(documents(50, seed=7))
    ours, theirs = ({d.text for d in documents(300, seed)} for seed in (1, 2))
    assert len(ours & theirs) < 10, "another seed gives other texts"


SOME = tuple(documents(200, seed=5))


def test_tokenizer_gives_one_token_per_character_and_reads_back(tmp_path: Path) -> None:
    write_tokenizer(character_tokenizer((d.text for d in SOME), minimum_count=1), tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for document in SOME:
        encoding = tokenizer.encode(document.text)
        assert len(encoding.ids) == len(document.text) + 2
        assert (encoding.tokens[0], encoding.tokens[-1]) == ("[CLS]", "[SEP]")
        assert "[UNK]" not in encoding.tokens
        assert tokenizer.encode(list(document.text), is_pretokenized=True).ids == encoding.ids
