"""Calibration texts become the ids that the vendor's tool gives its model, for tokenizers of several kinds."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from tests.targets.ascend_llm.folders import TEXTS
from workbench.quantization.llm.config import read_config
from workbench.targets.ascend_llm.texts import calibration_samples, read_documents, read_texts, read_tokenizer
from workbench.values.errors import ConfigError

SPECIAL = {"special_tokens": ["<unk>", "<s>", "</s>"], "vocab_size": 90, "show_progress": False}
KINDS = {
    "byte level": (models.BPE(), trainers.BpeTrainer(**SPECIAL)),
    "unigram": (models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", **SPECIAL)),
    "word piece": (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(**SPECIAL)),
}


def trained(kind: str) -> Tokenizer:
    """On the texts."""
    model, trainer = KINDS[kind]
    tokenizer = Tokenizer(model)
    if kind != "unigram":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def ids(folder: Path, tokenizer: Tokenizer, **said: object) -> list[int]:
    write_model(folder, "llama")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **said}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    read = read_tokenizer(folder, read_config(folder))
    found: list[int] = calibration_samples(TEXTS[:1], read, folder)[0][0].tolist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_adds_what_its_template_says_and_llamas_class_what_its_settings_say(
    tmp_path: Path, kind: str
) -> None:
    tokenizer, around = trained(kind), [("<s>", 1), ("</s>", 2)]
    plain = tokenizer.encode(TEXTS[0]).ids
    for template in (False, True):
        if template:
            tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=around)
        said = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True}
        assert ids(tmp_path, tokenizer, **said) == ([1, *plain, 2] if template else plain)
        for begin, end in ((True, False), (False, False), (True, True), (False, True)):
            said = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": begin, "add_eos_token": end}
            assert ids(tmp_path, tokenizer, **said) == [*[1][:begin], *plain, *[2][:end]]
        assert ids(tmp_path, tokenizer, tokenizer_class="LlamaTokenizerFast") == [1, *plain]


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    tokenizer = trained("byte level")
    tokenizer.add_tokens([f"<extra{number}>" for number in range(VOCABULARY)])
    with pytest.raises(ConfigError, match=f"the model's vocabulary has {VOCABULARY}"):
        ids(tmp_path, tokenizer)


def test_lines_and_lists_are_read_under_the_names_that_data_sets_use_and_others_are_refused(tmp_path: Path) -> None:
    lines, listed = (tmp_path / name for name in ("a.jsonl", "a.json"))
    lines.write_text('{"text": "x"}\n\n{"inputs_pretokenized": "y", "other": 1}\n')
    listed.write_text('["x", "y"]')
    assert read_documents(lines) == read_documents(listed) == ["x", "y"]
    lines.write_text('{"inputs_pretokenized": "a", "text": "b"}\n{"text": "c"}\n{"prompt": "d", "id": 4}\n')
    assert read_texts(lines, tmp_path) == ["a", "c", "d"]
    for name, text, said in (
        ("a.txt", " \n", "holds no text"),
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', r"a\.jsonl:2: has no key 'text' or 'inputs_pretokenized'"),
        ("a.jsonl", '{"messages": []}', "as the model's chat template gives it, under 'inputs_pretokenized'"),
        ("a.jsonl", '{"text": 3}', "item 0 is 3, not a text"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not valid JSON"),
        ("a.json", '{"text": "x"}', "expected a list"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_documents(tmp_path / name)


def test_chats_are_written_by_the_models_own_template_in_a_sandbox(tmp_path: Path) -> None:
    file, template = tmp_path / "a.jsonl", tmp_path / "chat_template.jinja"
    file.write_text('{"messages": [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "hi"}]}\n')
    with pytest.raises(ConfigError, match="has no chat template"):
        read_texts(file, tmp_path)
    turns = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>\n' }}{%- endfor %}"
    chat = "<|im_start|>user\n你好<|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ bos_token }}" + turns}))
    assert read_texts(file, tmp_path) == [chat]
    template.write_text("{% for m in messages %}{{ m | tojson }}{% break %}{% endfor %}", "utf-8")
    assert read_texts(file, tmp_path) == ['{"role": "user", "content": "你好"}']
    for bad in (
        "{% break %}",
        "{{ 1 / 0 }}",
        "{{ raise_exception('roles') }}",
        "{{ ''.__class__.__mro__ }}",
        "{% if",
        "{{ messages.append(1) }}",
    ):
        template.write_text(bad)
        with pytest.raises(ConfigError, match=r"chat_template\.jinja.*does not take item 0 of .*a\.jsonl"):
            read_texts(file, tmp_path)
