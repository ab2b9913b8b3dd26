"""Logits → classes and entities; the entities by the very rules that score them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.making import BINS, WORDS
from tests.word_pieces import write_tokenizer
from workbench.inputs.metrics.outcomes import CORRECT, GOLD, PREDICTED
from workbench.inputs.metrics.score import count_entities, tag_set
from workbench.serve.samples import NotFinite, TextSample, Tokenizing, classes, entities
from workbench.values.preprocess import Preprocessor, TokenInput, open_preprocessor

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    file = tmp_path_factory.mktemp("answers") / "tokenizer.json"
    write_tokenizer(file, WORDS)
    return open_preprocessor(file, max_length=16, bins=BINS, inputs=[TokenInput(name="input_ids", role="ids")])


@pytest.fixture(scope="module")
def tokenizing(preprocessor: Preprocessor) -> Tokenizing:
    return Tokenizing(preprocessor)


def logits_of(sample: TextSample, tags: list[int]) -> np.ndarray:
    """A tag for each word, on its first token; the others say B-LOC, which must not count."""
    found = np.zeros((1, 16, len(TAGS)), np.float32)
    found[0, :, 3] = 5
    for (position, _), tag in zip(sample.words(), tags, strict=True):
        found[0, position] = 0
        found[0, position, tag] = 5
    return found


def test_classes_come_with_softmax_scores_best_first_by_name_or_number_and_none_of_what_is_not_finite() -> None:
    (found,) = classes(np.log(np.array([[1, 2, 3, 4, 5, 5.0]], np.float32)), ["a", "b", "c", "d", "e", "f"])

    assert (found["label"], found["score"]) == ("e", 0.25)
    assert list(found["scores"].items()) == [("e", 0.25), ("f", 0.25), ("d", 0.2), ("c", 0.15), ("b", 0.1)]
    assert classes(np.array([[0.0, 100.0]], np.float32), [])[0]["scores"] == {"1": 1.0, "0": 0.0}
    with pytest.raises(NotFinite):
        classes(np.array([[0.0, np.nan]], np.float32), ["a", "b"])


def test_entities_have_the_characters_of_the_text_or_the_places_of_its_words(tokenizing: Tokenizing) -> None:
    rows: tuple[tuple[str | tuple[str, ...], list[int], list[tuple[str, int, int, str]]], ...] = (
        ("anna bell paid", [1, 2, 0], [("PER", 0, 9, "anna bell")]),
        ("  paid in   New york, paris", [0, 0, 3, 4, 0, 3], [("LOC", 12, 20, "New york"), ("LOC", 22, 27, "paris")]),
        ("belly paid", [1, 0], [("PER", 0, 5, "belly")]),  # tokens within a word
        ("anna bell", [1, 1], [("PER", 0, 4, "anna"), ("PER", 5, 9, "bell")]),
        ("anna paris", [1, 4], [("PER", 0, 4, "anna"), ("LOC", 5, 10, "paris")]),
        ("anna paid bell", [0, 0, 2], [("PER", 10, 14, "bell")]),
        ("张三 paid", [1, 2, 0], [("PER", 0, 2, "张三")]),
        ("paid", [0], []),
        (("paid", "belly", "bell", "paris"), [0, 1, 2, 3], [("PER", 1, 3, "belly bell"), ("LOC", 3, 4, "paris")]),
    )
    for text, tags, expected in rows:
        sample = tokenizing.sample(text)
        [found] = entities(logits_of(sample, tags), [sample], TAGS)
        assert [(e["type"], e["start"], e["end"], e["text"]) for e in found["entities"]] == expected
        assert all(0.9 < e["score"] <= 1 for e in found["entities"])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(range(len(TAGS))), min_size=1, max_size=16))
def test_the_entities_are_those_that_scoring_counts(preprocessor: Preprocessor, tags: list[int]) -> None:
    sample = Tokenizing(preprocessor).sample(("loan",) * len(tags))
    [found] = entities(logits_of(sample, tags), [sample], TAGS)
    again = ["O"] * len(tags)
    for entity in found["entities"]:
        again[entity["start"]] = f"B-{entity['type']}"
        for word in range(entity["start"] + 1, entity["end"]):
            again[word] = f"I-{entity['type']}"
    ours = np.array([[TAGS.index(tag) for tag in again]])

    counted, _ = count_entities(tag_set(TAGS), ours, np.array([tags]))

    assert (counted[..., CORRECT] == counted[..., PREDICTED]).all()
    assert (counted[..., CORRECT] == counted[..., GOLD]).all()
