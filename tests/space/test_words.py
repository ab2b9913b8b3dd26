"""Bins by word: which texts are words, and what they stand for before and after there is a dataset."""

import numpy as np
import pytest

from workbench.space.dimensions import dimensions_of
from workbench.space.words import bins_of, is_word, stand_in

BINS = dimensions_of("onnxruntime")["serving.sequence_bins"]
COMPILED = dimensions_of("ascend910b3")["compile.sequence_bins"]
LENGTHS = np.array([10, 20, 30, 40, 60, 100, 200, 300])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("optimal 4", True),
        ("quantiles 16", True),
        ("optimal 17", False),
        ("optimal 0", False),
        ("optimal", False),
        ("optimal ٤", False),
        ("32 64", False),
        (4, False),
    ],
)
def test_a_word_names_a_rule_and_a_number_of_bins(value: str | int, expected: bool) -> None:
    assert is_word(value, BINS) is expected
    assert not is_word(value, None)
    assert not is_word(value, dimensions_of("ascend910b3")["compile.batches"])


def test_stand_ins_tell_words_apart_and_ascend() -> None:
    found = {stand_in(word) for word in ("optimal 1", "optimal 2", "quantiles 1", "quantiles 2")}

    assert len(found) == 4
    assert stand_in("quantiles 3") == tuple(sorted(stand_in("quantiles 3")))
    assert len(stand_in("quantiles 3")) == 3


def test_bins_are_multiples_of_what_the_target_asks_for() -> None:
    assert bins_of("optimal 3", BINS, LENGTHS, 256) == (40, 104, 256)
    assert bins_of("optimal 3", COMPILED, LENGTHS, 256) == (48, 112, 256)
