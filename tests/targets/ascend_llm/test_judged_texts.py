"""Documents, prompts and the encoder: what is read, and bad input with file, line and rule."""

import json
from pathlib import Path

import pytest

from tests.targets.ascend_llm.folders import write_llm
from workbench.quantization.llm.config import read_config
from workbench.targets.ascend_llm.texts import encoder_of, prompt_ids, read_documents, read_prompts, read_tokenizer
from workbench.values.errors import ConfigError


def test_a_plain_file_is_one_document_and_many_prompts(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n\ntwo three\n")
    assert read_documents(file) == ["one\n\ntwo three\n"]
    assert read_prompts(file) == ["one", "two three"]


def test_lines_and_lists_of_json_are_one_each(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n\n{"inputs_pretokenized": "y", "other": 1}\n')
    (tmp_path / "a.json").write_text('["x", "y"]')
    assert read_documents(tmp_path / "a.jsonl") == read_documents(tmp_path / "a.json") == ["x", "y"]
    (tmp_path / "p.jsonl").write_text('{"prompt": "x", "text": "other"}\n')
    assert read_prompts(tmp_path / "p.jsonl") == ["x"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", " \n", "holds no text"),
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', r"a\.jsonl:2: has no key 'text' or 'inputs_pretokenized'"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: has no key"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", "", "holds 0 texts"),
        ("a.json", '{"text": "x"}', "expected a list"),
        ("a.json", '["x", 3]', "item 1 is 3, not a text"),
    ],
)
def test_bad_documents_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_documents(tmp_path / name)


def test_the_encoder_begins_a_text_as_the_tokenizer_does_and_does_not_end_it(tmp_path: Path) -> None:
    folder = write_llm(tmp_path / "m")
    config = read_config(folder)
    plain = encoder_of(read_tokenizer(folder, config))
    assert plain("the pump") == [1, 2]
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] |= {"<s>": 20, "</s>": 21}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]} for token, number in (("<s>", 20), ("</s>", 21))
        },
    }
    file.write_text(json.dumps(tokenizer))
    assert encoder_of(read_tokenizer(folder, config))("the pump") == [20, 1, 2]
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": true, "bos_token": "<s>"}')
    assert encoder_of(read_tokenizer(folder, config))("the") == [20, 1]


def test_a_prompt_needs_a_token_and_room_for_its_answer() -> None:
    assert prompt_ids(["ab"], lambda text: list(map(ord, text)), context=9, tokens=7)[0].tolist() == [[97, 98]]
    with pytest.raises(ConfigError, match=r"prompt 0 has 2 tokens and is to get 8 more; .* context is 9"):
        prompt_ids(["ab"], lambda text: list(map(ord, text)), context=9, tokens=8)
    with pytest.raises(ConfigError, match="prompt 0 has no token"):
        prompt_ids([""], lambda text: list(map(ord, text)), context=9, tokens=1)
