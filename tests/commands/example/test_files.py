import csv
import json
from pathlib import Path

from tokenizers import Tokenizer

from workbench.commands.example.build import (
    character_tokenizer,
    write_classification,
    write_ner,
    write_tokenizer,
)
from workbench.commands.example.texts import documents

SOME = tuple(documents(200, seed=5))


def test_classification_csv_reads_back_as_written(tmp_path: Path) -> None:
    write_classification(SOME, tmp_path / "a.csv")

    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))

    assert [(row["text"], row["label"]) for row in rows] == [(d.text, d.label) for d in SOME]


def test_ner_jsonl_has_one_tag_per_character(tmp_path: Path) -> None:
    write_ner(SOME, tmp_path / "a.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]

    assert ["".join(line["tokens"]) for line in lines] == [d.text for d in SOME]
    assert [tuple(line["tags"]) for line in lines] == [d.tags for d in SOME]


def test_tokenizer_gives_one_token_per_character_and_reads_back(tmp_path: Path) -> None:
    write_tokenizer(character_tokenizer((d.text for d in SOME), minimum_count=1), tmp_path / "tokenizer.json")

    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    for document in SOME:
        encoding = tokenizer.encode(document.text)
        assert len(encoding.ids) == len(document.text) + 2
        assert (encoding.tokens[0], encoding.tokens[-1]) == ("[CLS]", "[SEP]")
        assert "[UNK]" not in encoding.tokens


def test_tokens_given_one_by_one_are_encoded_like_the_text() -> None:
    tokenizer = character_tokenizer(d.text for d in SOME)

    for document in SOME:
        assert tokenizer.encode(list(document.text), is_pretokenized=True).ids == tokenizer.encode(document.text).ids


def test_padding_is_zero_and_unknown_characters_have_their_own_id() -> None:
    tokenizer = character_tokenizer(["贷款贷款"])

    assert [tokenizer.token_to_id(token) for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")] == [0, 1, 2, 3]
    assert tokenizer.encode("贷龘").tokens == ["[CLS]", "贷", "[UNK]", "[SEP]"]


def test_full_width_digits_are_read_as_half_width() -> None:
    tokenizer = character_tokenizer(["0123456789"], minimum_count=1)

    assert tokenizer.encode("１２").tokens == ["[CLS]", "1", "2", "[SEP]"]
