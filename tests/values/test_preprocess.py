import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.word_pieces import CLS, DUE, LOAN, MENT, PAD, PAY, SAN, SEP, VOCABULARY, ZHANG, write_tokenizer
from workbench.values.errors import ConfigError
from workbench.values.preprocess import (
    Preprocessor,
    TokenInput,
    check_vocabulary,
    collate,
    encode,
    encoder,
    open_preprocessor,
)


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    path = write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")
    return open_preprocessor(path, max_length=12, bins=(4, 8, 12))


def test_a_batch_is_padded_to_the_smallest_bin_of_its_longest_text(preprocessor: Preprocessor) -> None:
    feeds = collate(preprocessor, encode(preprocessor, ["loan", "loan payment due"]))

    assert feeds["input_ids"].tolist() == [
        [CLS, LOAN, SEP, PAD, PAD, PAD, PAD, PAD],
        [CLS, LOAN, PAY, MENT, DUE, SEP, PAD, PAD],
    ]
    assert feeds["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0]]
    assert not feeds["token_type_ids"].any()
    assert {array.dtype for array in feeds.values()} == {np.dtype(np.int64)}


def test_a_given_length_replaces_the_bin_and_must_hold_the_longest_text(preprocessor: Preprocessor) -> None:
    encoded = encode(preprocessor, ["loan payment due"])

    assert collate(preprocessor, encoded, length=7)["input_ids"].shape == (1, 7)
    with pytest.raises(ValueError, match="a text of 6 tokens does not fit the length 5"):
        collate(preprocessor, encoded, length=5)
    with pytest.raises(ValueError, match="at least one text"):
        collate(preprocessor, [])


def test_texts_are_cut_to_max_length_whatever_the_tokenizer_file_says(
    preprocessor: Preprocessor, tmp_path: Path
) -> None:
    padded = open_preprocessor(write_tokenizer(tmp_path / "t.json", pad_to=128), max_length=8)

    (cut,) = encode(preprocessor, ["loan " * 50])
    (short,) = encode(padded, ["loan payment due"])

    assert cut.ids == (CLS, *[LOAN] * 10, SEP)
    assert short.ids == (CLS, LOAN, PAY, MENT, DUE, SEP)


def test_identity_follows_everything_that_changes_feeds_and_neither_path_nor_process(tmp_path: Path) -> None:
    first = open_preprocessor(write_tokenizer(tmp_path / "a.json"), max_length=16)
    moved = open_preprocessor(write_tokenizer(tmp_path / "b.json"), max_length=16)
    other = open_preprocessor(write_tokenizer(tmp_path / "c.json", [*VOCABULARY, "more"]), max_length=16)
    inputs = [TokenInput(name="tokens", role="ids", dtype="int32"), TokenInput(name="real", role="mask")]
    named = open_preprocessor(first.tokenizer, max_length=16, inputs=inputs)

    assert first.identity == moved.identity
    assert pickle.loads(pickle.dumps(first)) == first
    changed = [other, named, dataclasses.replace(first, bins=(8, 16)), dataclasses.replace(first, max_length=15)]
    assert len({first.identity, *(p.identity for p in changed)}) == 5
    feeds = collate(named, encode(named, ["loan"]))
    assert {name: str(array.dtype) for name, array in feeds.items()} == {"tokens": "int32", "real": "int64"}


def test_encoding_starts_no_threads_and_a_later_fork_does_not_warn(preprocessor: Preprocessor) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom workbench.values.preprocess import encode, open_preprocessor\n"
        "p = open_preprocessor(Path(sys.argv[1]), max_length=12)\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "encode(p, ['loan payment due'] * 500)\n"
        "print(len(os.listdir('/proc/self/task')) - before, flush=True)\n"
        "if os.fork() == 0:\n    encode(p, ['loan'] * 500)\n    os._exit(0)\n"
        "os.wait()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", code, str(preprocessor.tokenizer)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=True)

    assert done.stdout.strip() == "0"
    assert done.stderr == ""


def test_a_tokenizer_with_ids_beyond_the_embedding_is_refused_with_both_numbers(preprocessor: Preprocessor) -> None:
    check_vocabulary(preprocessor, len(VOCABULARY))
    with pytest.raises(ConfigError, match=r"its ids go up to 10, but the model's token embedding has 10 rows"):
        check_vocabulary(preprocessor, 10)


def test_settings_that_contradict_each_other_are_refused(preprocessor: Preprocessor) -> None:
    for settings, message in (
        ({"bins": (8, 4, 12)}, r"bins: \[8, 4, 12\] are not ascending positive lengths"),
        ({"bins": (4, 8)}, r"bins: no bin holds a text of max_length 12; the longest bin is 8\. Add 12"),
        ({"bins": ()}, r"bins: \[\] are not ascending"),
        ({"max_length": 2}, "max_length: 2 tokens leave no room for text beside 2 special ones"),
        ({"inputs": (TokenInput(name="x", role="mask"),)}, "inputs: exactly one input takes the token ids"),
    ):
        wanted: dict[str, Any] = {"max_length": 12, "bins": None, "inputs": None} | settings
        with pytest.raises(ConfigError, match=message):
            open_preprocessor(preprocessor.tokenizer, **wanted)


def test_a_tokenizer_file_that_is_damaged_missing_or_without_padding_is_refused(tmp_path: Path) -> None:
    for content, message in (
        (b"{", "not a tokenizer file"),
        (b"\xff\xfe{}", "byte 0xff is not UTF-8"),
        (b'{"version": "1.0", "model": {"type": "Nothing"}}', "Write it with `Tokenizer.save`"),
        (write_tokenizer(tmp_path / "t.json", ["[UNK]", "loan"]).read_bytes(), r"looked for \[PAD\], <pad>"),
        (None, "no such file"),
    ):
        path = tmp_path / "tokenizer.json"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=message) as caught:
            open_preprocessor(path, max_length=16)
        assert caught.value.file == path


def test_a_tokenizer_file_that_changes_under_a_run_is_noticed(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "t.json")
    preprocessor = dataclasses.replace(open_preprocessor(path, max_length=16), max_length=14)
    write_tokenizer(path, [*VOCABULARY, "more"])

    with pytest.raises(ConfigError, match="changed since it was first read"):
        encode(preprocessor, ["loan"])


def test_an_encoded_text_says_where_its_tokens_stand_of_which_word_they_are_and_whether_it_was_cut(
    preprocessor: Preprocessor,
) -> None:
    one = encoder(preprocessor)

    encoded, tokens = one("loan payment")
    cut, more = one(["loan"] * 20)
    words, characters = encode(preprocessor, [["loan", "payment", "due"], ["张", "\u3000", "三"]])

    assert words.words == (-1, 0, 1, 1, 2, -1)
    assert characters.ids == (CLS, ZHANG, SAN, SEP)
    assert characters.words == (-1, 0, 2, -1)  # the tokenizer drops white space
    assert [encoded, cut] == encode(preprocessor, ["loan payment", ["loan"] * 20])
    assert tokens.offsets == [(0, 0), (0, 4), (5, 8), (8, 12), (0, 0)]
    assert tokens.word_ids == [None, 0, 1, 1, None]
    assert not tokens.overflowing
    assert more.overflowing
