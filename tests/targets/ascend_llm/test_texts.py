"""Calibration texts become the ids that the vendor's tool gives its model, for tokenizers of several kinds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from tests.targets.ascend_llm.folders import TEXTS
from workbench.quantization.llm.config import read_config
from workbench.targets.ascend_llm.texts import (
    calibration_samples,
    read_documents,
    read_texts,
    read_tokenizer,
)
from workbench.values.errors import ConfigError

SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    return tokenizer


def with_template(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def ids(folder: Path, tokenizer: Tokenizer, **said: object) -> list[int]:
    folder.mkdir(exist_ok=True)
    write_model(folder, "llama")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **said}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    read = read_tokenizer(folder, read_config(folder))
    found: list[int] = calibration_samples(TEXTS[:1], read, folder)[0][0].tolist()
    return found


@pytest.mark.parametrize("make", [byte_level, unigram, word_piece])
def test_a_plain_tokenizer_adds_nothing_and_one_with_a_template_what_it_says(
    tmp_path: Path, make: Callable[[], Tokenizer]
) -> None:
    tokenizer = make()
    plain = tokenizer.encode(TEXTS[0]).ids
    assert ids(tmp_path, tokenizer, tokenizer_class="PreTrainedTokenizerFast", add_bos_token=True) == plain
    assert ids(tmp_path, with_template(tokenizer), tokenizer_class="PreTrainedTokenizerFast") == [1, *plain, 2]


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize(
    ("said", "before", "behind"),
    [
        ({}, [1], []),
        ({"add_bos_token": False}, [], []),
        ({"add_eos_token": True}, [1], [2]),
        ({"add_bos_token": False, "add_eos_token": True}, [], [2]),
    ],
)
def test_llamas_class_goes_by_its_settings_alone(
    tmp_path: Path, template: bool, said: dict[str, object], before: list[int], behind: list[int]
) -> None:
    tokenizer = byte_level()
    plain = tokenizer.encode(TEXTS[0]).ids
    if template:
        with_template(tokenizer)
    assert ids(tmp_path, tokenizer, tokenizer_class="LlamaTokenizerFast", **said) == [*before, *plain, *behind]


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([f"<extra{number}>" for number in range(VOCABULARY)])
    with pytest.raises(ConfigError, match=f"the model's vocabulary has {VOCABULARY}"):
        ids(tmp_path, tokenizer)


def test_lines_and_lists_of_json_are_one_each(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n\n{"inputs_pretokenized": "y", "other": 1}\n')
    (tmp_path / "a.json").write_text('["x", "y"]')
    assert read_documents(tmp_path / "a.jsonl") == read_documents(tmp_path / "a.json") == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", " \n", "holds no text"),
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', r"a\.jsonl:2: has no key 'text' or 'inputs_pretokenized'"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not valid JSON"),
        ("a.json", '{"text": "x"}', "expected a list"),
    ],
)
def test_bad_documents_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_documents(tmp_path / name)


def test_calibration_texts_are_read_under_the_names_that_data_sets_use(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"inputs_pretokenized": "a", "text": "b"}\n{"text": "c"}\n{"prompt": "d", "id": 4}\n')

    assert read_texts(file) == ["a", "c", "d"]
