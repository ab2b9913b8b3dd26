"""What a tokenizer's normalizer can make of a text."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from workbench.values import normalizer
from workbench.values.errors import ConfigError
from workbench.values.normalizer import check_growth


def body(*steps: Any, pre: Any = None) -> dict[str, Any]:
    """A tokenizer's file with these normalizers, as the library writes it."""
    made = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence(list(steps))
    if pre is not None:
        made.pre_tokenizer = pre
    found: dict[str, Any] = json.loads(made.to_str())
    return found


REPLACE = normalizers.Replace


def test_a_normalizer_that_can_fill_the_memory_is_refused() -> None:
    for steps in (
        [REPLACE("a", "a" * 200)] * 5,
        [REPLACE(chr(97 + i), chr(98 + i) * 200) for i in range(5)],
        [REPLACE(Regex("[a-z]"), "a" * 20)] * 3,
        [REPLACE(Regex("x*"), "ab" * 20)] * 3,
        [REPLACE("A", "b" * 300), normalizers.Lowercase()],
        [normalizers.Prepend("a" * 300)],
        [normalizers.Sequence([REPLACE("a", "bb"), normalizers.Sequence([REPLACE("b", "c" * 200)])])],
        [REPLACE("q", "é" * 20), normalizers.NFD(), REPLACE("\u0301", "z" * 20)],
    ):
        with pytest.raises(ConfigError, match="characters for one of a text; 256 may be"):
            check_growth(body(*steps), Path("tokenizer.json"))


def test_normalizers_of_published_tokenizers_pass() -> None:
    table = [REPLACE(old, new) for old, new in (("“", '"'), ("…", "..."), ("½", " 1/2"), ("``", '"'), ("ﬁ", "fi"))]
    for steps in (
        [normalizers.BertNormalizer()],
        [normalizers.Prepend("▁"), REPLACE(" ", "▁")],
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.NFD(), normalizers.StripAccents()],
        [normalizers.Nmt(), normalizers.NFKC(), REPLACE(Regex(" {2,}"), "▁")],
        [*table, *table, *table],
    ):
        check_growth(body(*steps, pre=pre_tokenizers.Metaspace()), Path("tokenizer.json"))
    check_growth({"normalizer": None, "pre_tokenizer": None}, Path("tokenizer.json"))


def test_a_step_that_is_unknown_or_has_no_form_is_refused() -> None:
    for step in ({"type": "Grow"}, {"type": "Replace", "pattern": {"String": "a"}}, {"pattern": "a"}, 3):
        with pytest.raises(ConfigError, match="its normalizer cannot be read"):
            check_growth({"normalizer": step}, Path("tokenizer.json"))


LETTERS = st.text("abé x", min_size=1, max_size=3)


@given(
    st.lists(
        st.one_of(
            st.builds(REPLACE, LETTERS, st.text("abé x", max_size=6)),
            st.builds(lambda p, c: REPLACE(Regex(p), c), st.sampled_from(["a", "b+", " ?", "a|b", "[^x]"]), LETTERS),
            st.sampled_from([normalizers.NFD(), normalizers.Lowercase(), normalizers.Prepend("ab")]),
        ),
        max_size=4,
    ),
    st.text("abé xA", min_size=1, max_size=8),
)
def test_no_text_becomes_longer_than_the_bound_says(steps: list[Any], text: str) -> None:
    found = body(*steps)["normalizer"]
    bound = normalizer._growth(list(normalizer._steps(found)))

    try:
        grown = normalizers.Sequence(steps).normalize_str(text)
    except BaseException as error:  # the library panics on some replacements by nothing; `preprocess` words that
        assume(type(error).__name__ != "PanicException")
        raise
    assert len(grown) <= 2 * bound * len(text)  # é becomes two of NFD
