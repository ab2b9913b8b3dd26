"""Samples in the form that a server asks for, and the words where they do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.load.kserve.servers import BERT, IDS, MASK, served
from workbench.load.kserve.served import feeds_for, texts_for
from workbench.values.errors import ConfigError

FEEDS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": np.zeros_like(IDS)}


def test_inputs_get_the_servers_types_and_what_it_does_not_ask_for_stays_away() -> None:
    found = feeds_for(BERT, FEEDS)

    assert {name: array.dtype.name for name, array in found.items()} == {
        "input_ids": "int64",
        "attention_mask": "int32",
    }


def test_an_input_of_another_name_can_be_named() -> None:
    model = served(("INPUT__0", "INT64", (-1, -1)))
    with pytest.raises(ConfigError, match=r"asks for the input 'INPUT__0'.*--map-input INPUT__0=NAME"):
        feeds_for(model, FEEDS)

    assert (
        feeds_for(replace(model, renamed_inputs={"INPUT__0": "input_ids"}), FEEDS)["INPUT__0"].tolist() == IDS.tolist()
    )


def test_what_does_not_fit_says_so() -> None:
    for kind, shape, words in (
        ("INT64", (-1, 128), r"has the shape \[-1, 128\]; a request would have \[2, 4\]"),
        ("INT64", (1, -1), r"\[1, -1\]"),
        ("INT64", (-1,), r"\[-1\]"),
        ("FP32", (-1, -1), "is FP32; the data are int64"),
        ("BF16", (-1, -1), "is BF16"),
        ("INT8", (-1, -1), "a value of 300 does not fit"),
    ):
        with pytest.raises(ConfigError, match=words):
            feeds_for(served(("input_ids", kind, shape)), {"input_ids": np.where(IDS == 101, 300, IDS)})


def test_words_become_one_text_with_blanks_for_a_server_that_tokenizes() -> None:
    model = served(("TEXT", "BYTES", (-1,)))

    assert model.takes_texts
    assert texts_for(model, (("张", "三"), "pay"))["TEXT"].tolist() == ["张 三", "pay"]
