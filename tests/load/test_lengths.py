"""Texts of exactly so many tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.word_pieces import write_tokenizer
from workbench.load.requests import texts_of_length
from workbench.values.errors import ConfigError
from workbench.values.preprocess import Preprocessor, encode, open_preprocessor

WORD = st.text("abcdefgh", min_size=1, max_size=5)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", *(f"##{c}" for c in "abcdefgh")]


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    """Pieces of one letter: a word of three letters has three tokens; [CLS] and [SEP] around a text."""
    file = write_tokenizer(tmp_path_factory.mktemp("pieces") / "tokenizer.json", VOCABULARY)
    return open_preprocessor(file, max_length=40)


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(st.lists(WORD, min_size=1, max_size=6), min_size=1, max_size=5),
    length=st.integers(3, 40),
)
def test_every_text_has_exactly_the_length(preprocessor: Preprocessor, texts: list[list[str]], length: int) -> None:
    found = texts_of_length(preprocessor, [" ".join(words) for words in texts], length, 10)

    assert 1 <= len(found) <= len(texts)
    assert {len(one.ids) for one in encode(preprocessor, found)} == {length}


def test_words_stay_words_and_are_not_cut_apart(preprocessor: Preprocessor) -> None:
    found = texts_of_length(preprocessor, [("abc", "de"), ("f",)], 7, 10)

    assert all(isinstance(text, tuple) for text in found)
    assert {len(one.ids) for one in encode(preprocessor, found)} == {7}
    assert {word for text in found for word in text} <= {"abc", "de", "f"}


def test_a_length_that_no_words_meet_or_no_model_takes_is_refused(preprocessor: Preprocessor) -> None:
    with pytest.raises(ConfigError, match="no text of exactly 6 tokens"):  # cutting a word would change it
        texts_of_length(preprocessor, [("abc",)], 6, 10)
    for length in (0, 41):
        with pytest.raises(ConfigError, match="outside 1 to 40"):
            texts_of_length(preprocessor, ["abc"], length, 1)
