"""Multiple choice by likelihood: files of questions, what is asked and scored, and what is said of the difference."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.quantization.llm.tiny_models import VOCABULARY, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.choices import (
    AskedQuestion,
    Question,
    accuracy,
    answers,
    asked,
    chance,
    compare_answers,
    read_questions,
)
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.values.errors import ConfigError, MeasureError


@pytest.fixture
def config(tmp_path: Path) -> LlmConfig:
    return read_config(write_model(tmp_path / "m", "qwen2", max_position_embeddings=512))


def encode(text: str) -> list[int]:
    """A token for each character, behind one that begins a text."""
    return [1, *(ord(letter) % (VOCABULARY - 2) + 2 for letter in text)]


def question(text: str = "2 + 2?", answer: int = 1, **changes: object) -> Question:
    fields = {"options": ("3", "4", "5"), "subject": "sums", "language": "en", "place": "f:1", **changes}
    return Question(text=text, answer=answer, **fields)


def text_of(inputs: Sequence[int], texts: Sequence[str]) -> str:
    """The text whose ids these are but for the last."""
    return next(text for text in texts if encode(text)[:-1] == list(inputs))


def test_letters_are_asked_as_the_harness_does_and_share_one_input(config: LlmConfig) -> None:
    (one,) = asked([question()], encode, config)
    said = "The following are multiple choice questions (with answers) about sums.\n\n2 + 2?\nA. 3\nB. 4\nC. 5\nAnswer:"
    # in this encoding a space is a token of its own: the letter and the space before it are scored
    assert {text_of(ids, [f"{said} {letter}" for letter in "ABC"]) for ids in one.inputs} == {f"{said} A"}
    assert one.targets == tuple(tuple(encode(f" {letter}")[1:]) for letter in "ABC")
    assert one.answer == 1


def test_examples_of_the_subject_stand_before_and_chinese_questions_are_asked_in_chinese(config: LlmConfig) -> None:
    shown = [question("1 + 1?", 2), question("other", 0, subject="songs"), question("0 + 1?", 0)]
    english = (
        "The following are multiple choice questions (with answers) about sums.\n\n"
        "1 + 1?\nA. 3\nB. 4\nC. 5\nAnswer: C\n\n2 + 2?\nA. 3\nB. 4\nC. 5\nAnswer: A"
    )
    chinese = "以下是单项选择题，请选出其中的正确答案。\n\n问\nA. 3\nB. 4\nC. 5\n答案： A"
    for given, shots, said in ((question(), 1, english), (question("问", language="zh"), 0, chinese)):
        (one,) = asked([given], encode, config, shots=shots, examples=shown)
        assert list(one.inputs[0]) == encode(said)[:-1]


def test_more_examples_than_there_are_and_questions_beyond_the_context_are_refused(config: LlmConfig) -> None:
    with pytest.raises(ConfigError, match=r"1 examples of 'sums', 2 are to be shown"):
        asked([question()], encode, config, shots=2, examples=[question()])
    with pytest.raises(ConfigError, match=r"f:1: \d+ tokens with 0 examples, the model's context is 512"):
        asked([question("long " * 200)], encode, config)


def test_the_answer_is_the_option_of_the_largest_likelihood(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "n", "qwen3", "float32", max_position_embeddings=512))
    questions = asked([question(f"{n} + 1?", n % 3) for n in range(2)], encode, model.config)
    found = answers("m", questions, logits_of(float_decoder(model), "prefill"))
    for number, one in enumerate(questions):
        scores = []
        for ids, targets in zip(one.inputs, one.targets, strict=True):
            (logits,) = logits_of(float_decoder(model), "prefill")([torch.tensor([ids])])
            rows = torch.log_softmax(logits[0].double(), -1)[-len(targets) :]
            scores.append(sum(float(row[target]) for row, target in zip(rows, targets, strict=True)))
        assert found[number] == int(np.argmax(scores))


def test_a_logit_that_is_no_number_names_model_and_question(config: LlmConfig) -> None:
    def forward(windows: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        yield from (torch.full((1, ids.shape[1], VOCABULARY), math.nan) for ids in windows)

    with pytest.raises(MeasureError, match="static: question 0 has logits that are NaN"):
        answers("static", asked([question()], encode, config), forward)


def test_lost_won_and_changed_answers_are_counted() -> None:
    one = AskedQuestion(inputs=((1,),) * 4, targets=((1,),) * 4, answer=0)
    reference, given = np.array([0, 0, 1, 2, 0, 3]), np.array([0, 1, 0, 1, 2, 3])
    found = compare_answers([one] * 6, reference, given)
    assert (found.lost, found.won, found.changed) == (2, 1, 4)
    assert found.accuracy == pytest.approx(2 / 6)
    assert found.float_accuracy == pytest.approx(3 / 6)
    assert found.drop.drop_pp.value == pytest.approx(100 / 6)
    assert found.drop.p_value == 1
    assert chance([one] * 6) == 0.25
    ours = accuracy([one] * 6, reference)
    assert 0.1 < ours.low < ours.value == 0.5 < ours.high < 0.9


MMLU = '"Find all c in Z_3, such that x^2 + c is a field.",0,1,2,3,B\n"Two\nlines",a,"b, c",d,,D\n'
C_EVAL = "id,question,A,B,C,D,answer,explanation\n0,使用公网地址的是____。,甲,乙,丙,丁,C,因为\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_mmlu_files_have_no_header_and_c_evals_one_and_their_name_is_the_subject(tmp_path: Path) -> None:
    file = write(tmp_path / "abstract_algebra_test.csv", MMLU)
    first, second = read_questions([file])
    text = "Find all c in Z_3, such that x^2 + c is a field."
    assert first == question(
        text, 1, options=("0", "1", "2", "3"), subject="abstract algebra", language="en", place=f"{file}:1"
    )
    assert (second.text, second.options, second.answer) == ("Two\nlines", ("a", "b, c", "d", ""), 3)
    assert second.place.endswith(":3")
    (found,) = read_questions([write(tmp_path / "computer_network_val.csv", "\ufeff" + C_EVAL)])
    assert (found.language, found.answer, found.options) == ("zh", 2, ("甲", "乙", "丙", "丁"))
    assert found.subject == "computer network"
    text = ",Question,A,B,C,D,Answer\n0,问,甲,乙,丙,丁,A\n"
    (found,) = read_questions([write(tmp_path / "agronomy.csv", text)])  # CMMLU's columns are found by their names
    assert (found.text, found.answer, found.language) == ("问", 0, "zh")


def test_lines_of_json_may_have_other_counts_of_options_and_a_folder_is_its_files_by_name(tmp_path: Path) -> None:
    one = '{"question": "q", "choices": ["x", "y"], "answer": 1}'
    other = '{"question": "q", "choices": ["1", "2", "3", "4", "5"], "answer": "E"}'
    write(tmp_path / "a_test.csv", MMLU)
    write(tmp_path / "mine.jsonl", f"{one}\n\n{other}")
    write(tmp_path / "readme.txt", "no questions")
    *mmlu, a, b = read_questions([tmp_path])
    assert [each.subject for each in mmlu] == ["a", "a"]
    assert (a.options, a.answer, a.subject, a.language) == (("x", "y"), 1, "mine", "en")
    assert (len(b.options), b.answer) == (5, 4)


def test_bad_files_are_refused_with_file_line_and_rule(tmp_path: Path) -> None:
    for name, text, said in (
        ("a.csv", "q,1,2,3,4,B\nq,1,2,3,B\n", r"a\.csv:2: has 5 columns, expected 6"),
        ("a.csv", "q,1,2,3,4,E\n", r"a\.csv:1: answer: 'E' is no answer"),
        ("a.csv", "q,1,2,3,4,1\n", r"a\.csv:1: answer: '1' is no answer"),
        ("a.csv", " ,1,2,3,4,A\n", r"a\.csv:1: question: ' ' is no question"),
        ("a.csv", 'q,"1" x,2,3,4,A\n', r"a\.csv:1: is no CSV"),
        ("a.csv", "id,question,A,B,C,D\n0,q,1,2,3,4\n", r"a\.csv: has no column 'answer'.*val files"),
        ("a.csv", "id,question,A,B,C,answer\n", r"a\.csv: has no column 'd'"),
        ("a.csv", "", "0 questions"),
        ("a.txt", "q", "not valid JSON"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: holds no JSON object"),
        ("a.jsonl", '{"question": "q", "choices": "ab", "answer": 0}', r"a\.jsonl:1: choices: expected a list"),
        ("a.jsonl", '{"question": "q", "choices": ["a"], "answer": 0}', "expected a list"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"], "answer": 2}', "2 is no answer"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"], "answer": true}', "True is no answer"),
        ("a.jsonl", '{"question": "q", "choices": ["a", "b"]}', "None is no answer"),
        ("a.jsonl", '{"question": 3, "choices": ["a", "b"], "answer": 0}', "3 is no question"),
        ("a.csv", b"q,1,2,\xff,4,A\n", "UTF-8"),
    ):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError, match=said):
            read_questions([tmp_path / name])
    with pytest.raises(ConfigError, match=r"b\.csv"):
        read_questions([tmp_path / "b.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="0 questions"):
        read_questions([tmp_path / "empty"])
