"""Multiple choice by likelihood: what is asked, what is scored, and what is said of the difference."""

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
)
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.forwards import float_logits
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


def test_examples_of_the_subject_stand_before_with_their_answers(config: LlmConfig) -> None:
    shown = [question("1 + 1?", 2), question("other", 0, subject="songs"), question("0 + 1?", 0)]
    (one,) = asked([question()], encode, config, shots=1, examples=shown)
    said = (
        "The following are multiple choice questions (with answers) about sums.\n\n"
        "1 + 1?\nA. 3\nB. 4\nC. 5\nAnswer: C\n\n2 + 2?\nA. 3\nB. 4\nC. 5\nAnswer: A"
    )
    assert list(one.inputs[0]) == encode(said)[:-1]


def test_chinese_questions_are_asked_in_chinese(config: LlmConfig) -> None:
    (one,) = asked([question("问", language="zh")], encode, config)
    said = "以下是单项选择题，请选出其中的正确答案。\n\n问\nA. 3\nB. 4\nC. 5\n答案： A"
    assert list(one.inputs[0]) == encode(said)[:-1]


def test_more_examples_than_there_are_and_questions_beyond_the_context_are_refused(config: LlmConfig) -> None:
    with pytest.raises(ConfigError, match=r"1 examples of 'sums', 2 are to be shown"):
        asked([question()], encode, config, shots=2, examples=[question()])
    with pytest.raises(ConfigError, match=r"f:1: \d+ tokens with 0 examples, the model's context is 512"):
        asked([question("long " * 200)], encode, config)


def test_the_answer_is_the_option_of_the_largest_likelihood(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "n", "qwen3", "float32", max_position_embeddings=512))
    questions = asked([question(f"{n} + 1?", n % 3) for n in range(2)], encode, model.config)
    found = answers("m", questions, float_logits(model))
    for number, one in enumerate(questions):
        scores = []
        for ids, targets in zip(one.inputs, one.targets, strict=True):
            (logits,) = float_logits(model)([torch.tensor([ids])])
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
