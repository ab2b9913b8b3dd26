"""An example is built whole or not at all, and alike for a seed: texts, the tokenizer made of them, and a model."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch
from tokenizers import Tokenizer

from workbench.commands.example.build import Recipe, build_example, character_tokenizer, write_tokenizer
from workbench.commands.example.texts import ENTITIES, TAGS, documents
from workbench.values.errors import ConfigError

TINY = Recipe(
    task="classification",
    hidden_size=32,
    layers=1,
    training=48,
    epochs=1,
    batch=16,
    learning_rate=1e-3,
    train_length=32,
    validation=24,
    holdout=12,
    calibration=16,
)
"""A handful of texts for a few steps: everything of a real build but its quality."""
FILES = "build.json calibration.csv checkpoint/config.json checkpoint/model.safetensors holdout.csv labels.json "
FILES += "model.onnx tokenizer.json validation.csv"


def files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def ignore(_line: str) -> None: ...


def test_a_build_writes_everything_reports_progress_and_is_alike_for_a_seed(tmp_path: Path) -> None:
    lines: list[str] = []
    torch.manual_seed(123)  # the caller's own state must not matter, nor be touched
    build_example("tiny", tmp_path / "tiny", lines.append, recipe=TINY)
    assert torch.initial_seed() == 123
    assert files_below(tmp_path / "tiny") == FILES.split()
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]
    assert "step" in " ".join(lines)
    assert "compared with PyTorch" in lines[-1]
    receipt = json.loads((tmp_path / "tiny" / "build.json").read_text(encoding="utf-8"))
    assert receipt["measured"]["top1_agreement"] == 1.0
    build_example("tiny", tmp_path / "again", ignore, recipe=TINY)
    build_example("tiny", tmp_path / "other", ignore, recipe=TINY, seed=1)
    weights = {
        name: {i.name: i.raw_data for i in onnx.load(tmp_path / name / "model.onnx").graph.initializer}
        for name in ("tiny", "again", "other")
    }
    assert weights["tiny"] == weights["again"]
    assert weights["tiny"] != weights["other"]
    splits = [
        (tmp_path / "tiny" / f"{split}.csv").read_text(encoding="utf-8").splitlines()[1:]
        for split in ("calibration", "validation", "holdout")
    ]
    assert [len(split) for split in splits] == [16, 24, 12]
    # A few one-line questions have so few wordings that they come again, as they do at a real desk.
    assert len(set(splits[0]) & set(splits[1])) <= 2
    assert len(set(splits[1]) & set(splits[2])) <= 2

    lines.clear()
    build_example("tiny", tmp_path / "tiny", lines.append, recipe=TINY)
    assert lines == [f"tiny: already built in {tmp_path / 'tiny'}"]
    with pytest.raises(ConfigError, match=r"holds another build.*Remove the folder"):
        build_example("tiny", tmp_path / "tiny", ignore, recipe=TINY, seed=1)


def test_ner_is_built_too(tmp_path: Path) -> None:
    build_example("tiny", tmp_path / "tiny", ignore, recipe=replace(TINY, task="ner"))

    assert files_below(tmp_path / "tiny") == [name.replace(".csv", ".jsonl") for name in FILES.split()]


def test_what_is_there_is_left_alone_and_a_crash_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no finished example"):
        build_example("tiny", tmp_path, ignore, recipe=TINY)
    for line in ("training BERT", "trained in"):

        def crash(said: str, line: str = line) -> None:
            if line in said:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_example("tiny", tmp_path / "tiny", crash, recipe=TINY)
        assert files_below(tmp_path) == ["mine.txt"]
    with pytest.raises(ConfigError, match="Did you mean 'loan-ner-mini'"):
        build_example("loan-ner-mni", tmp_path / "x", ignore)


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
