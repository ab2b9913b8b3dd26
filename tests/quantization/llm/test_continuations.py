"""Greedy answers: where they part from the float model's."""

import pytest
import torch

from workbench.quantization.llm.differences import compare_continuations


def test_answers_part_at_their_first_different_token() -> None:
    reference = [torch.tensor(each) for each in ([1, 2, 3], [1, 2, 3], [1, 2], [4])]
    given = [torch.tensor(each) for each in ([1, 2, 3], [1, 5, 3], [1, 2, 9], [7])]
    found = compare_continuations(reference, given, tokens=3)
    assert found.first_different == (None, 1, 2, 0)
    assert found.kept == pytest.approx((3 + 1 + 2 + 0) / 9)
    assert found.same.value == 0.25
    assert found.same.low < 0.25 < found.same.high


def test_equal_answers_everywhere_are_not_taken_for_certain() -> None:
    answers = [torch.tensor([1, 2])] * 5
    found = compare_continuations(answers, answers, tokens=2)
    assert (found.same.value, found.same.high, found.kept) == (1, 1, 1)
    assert found.same.low < 0.9


def test_answers_to_other_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_continuations([torch.tensor([1])], [], tokens=1)
