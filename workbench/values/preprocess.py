"""Text → feeds: the one path that calibration, scoring and serving share.

    encoded = encode(preprocessor, ["a text", ["a", "list", "of", "words"]])
    feeds = collate(preprocessor, encoded)      # int64 arrays [batch, bin]

A batch is padded to the smallest bin that holds its longest text. Texts are encoded one by one: the tokenizer's own
batch call starts a thread pool, which breaks when the process forks later and competes with the timed model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.input_files import open_file, read_text
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError
from workbench.values.normalizer import check_growth

Array = npt.NDArray[np.generic]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; the same type as `workbench.targets.base.Feeds`."""

Role = Literal["ids", "mask", "types"]
Text = str | Sequence[str]
"""A text as it is, its words (one word may be one character), or a `Pair`."""


class Pair(NamedTuple):
    """Two texts that a cross-encoder reads at once, the longer of which is cut first."""

    first: str
    second: str


WELL_KNOWN_INPUTS: Mapping[str, Role] = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "input_mask": "mask",
    "token_type_ids": "types",
    "segment_ids": "types",
}
"""Model inputs whose role is known by name: BERT's own and those of Hugging Face's exporters."""

_SHORTEST_BIN = 16
MOST_TOKENIZER_BYTES = 1 << 27
"""Of a tokenizer's file: twice what vocabularies of a quarter million words need."""
LONGEST_TEXT = 1 << 20
"""Tokens; a batch holds so many ids for each of its rows."""
_PAD_TOKENS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInput:
    """One model input made from text: token ids, the mask of real tokens (1) and padding (0), or segment ids."""

    name: str
    role: Role
    dtype: str = "int64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessor:
    """Everything that decides which feeds a text becomes. Made by `open_preprocessor`; picklable.

    Attributes:
        tokenizer: file of the `tokenizers` library; read again when first used in another process.
        max_length: texts are cut to this many tokens, special tokens included.
        bins: ascending padded lengths; the last one is at least `max_length`.
        largest_id: the highest id the tokenizer can give, added tokens included.
    """

    tokenizer: Path
    tokenizer_sha256: str
    max_length: int
    bins: tuple[int, ...]
    inputs: tuple[TokenInput, ...]
    pad_id: int
    largest_id: int

    def __post_init__(self) -> None:
        if not self.bins or list(self.bins) != sorted(set(self.bins)) or self.bins[0] < 1:
            raise ConfigError(f"{list(self.bins)} are not ascending positive lengths.", key="bins")
        if self.bins[-1] > LONGEST_TEXT:
            raise ConfigError(f"{self.bins[-1]} is more than {LONGEST_TEXT} tokens.", key="bins")
        if self.bins[-1] < self.max_length:
            raise ConfigError(
                f"no bin holds a text of max_length {self.max_length}; the longest bin is {self.bins[-1]}.",
                key="bins",
                hint=f"Add {self.max_length} or lower max_length.",
            )
        if [i.role for i in self.inputs].count("ids") != 1 or len({i.name for i in self.inputs}) != len(self.inputs):
            found = ", ".join(f"{i.name}: {i.role}" for i in self.inputs) or "nothing"
            raise ConfigError(
                f"exactly one input takes the token ids and every name stands once; got {found}.",
                key="inputs",
                hint="Write inputs: {MODEL_INPUT: ids, OTHER_INPUT: mask}.",
            )

    @property
    def identity(self) -> str:
        """64 hex digits over all that changes feeds; where the tokenizer file lies is not part of it."""
        return digest(
            {
                "tokenizer": self.tokenizer_sha256,
                "max_length": self.max_length,
                "bins": self.bins,
                "inputs": self.inputs,
                "pad_id": self.pad_id,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One text as the tokenizer sees it, cut to `max_length`, not padded.

    Attributes:
        types: segment of each token.
        words: for a list of words, the index of the word each token came from, -1 for special tokens; empty for
            a plain text.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...]
    words: tuple[int, ...] = ()


def open_preprocessor(
    tokenizer: Path,
    *,
    max_length: int,
    bins: Sequence[int] | None = None,
    inputs: Sequence[TokenInput] | None = None,
) -> Preprocessor:
    """Read a tokenizer file and check the settings around it.

    Padding and truncation written inside the tokenizer file are not used: these settings decide.

    Args:
        bins: None for the powers of two from 16 below `max_length`, and `max_length` itself: 16, 32, 64, 100.
        inputs: None for int64 `input_ids`, `attention_mask` and `token_type_ids`.

    Raises:
        ConfigError: the file cannot be read or has no padding token, or the settings contradict each other.
    """
    open_file(tokenizer, limit_bytes=MOST_TOKENIZER_BYTES, key="tokenizer").close()
    sha256 = file_digest(tokenizer)
    loaded = _tokenizer(tokenizer, sha256, max_length)
    if inputs is None:
        inputs = [
            TokenInput(name=n, role=WELL_KNOWN_INPUTS[n]) for n in ("input_ids", "attention_mask", "token_type_ids")
        ]
    if bins is None:
        powers = (_SHORTEST_BIN << i for i in range(max(0, max_length).bit_length()))
        bins = (*(power for power in powers if power < max_length), max_length)
    return Preprocessor(
        tokenizer=tokenizer,
        tokenizer_sha256=sha256,
        max_length=max_length,
        bins=tuple(bins),
        inputs=tuple(inputs),
        pad_id=_pad_id(loaded, tokenizer),
        largest_id=max(loaded.get_vocab(with_added_tokens=True).values()),
    )


def encode(preprocessor: Preprocessor, texts: Iterable[Text]) -> list[Encoded]:
    """Tokenize texts, special tokens added, each cut to `max_length`. Deterministic; runs in the calling thread."""
    one = encoder(preprocessor)
    return [one(text)[0] for text in texts]


def encoder(preprocessor: Preprocessor) -> Callable[[Text], tuple[Encoded, Encoding]]:
    """What `encode` does with each text, for who needs offsets or whether it was cut as well.

    Raises:
        ConfigError: the tokenizer's file changed or cannot be read.
    """
    tokenize = _tokenizer(preprocessor.tokenizer, preprocessor.tokenizer_sha256, preprocessor.max_length).encode

    def one(text: Text) -> tuple[Encoded, Encoding]:
        try:
            if isinstance(text, Pair):
                found = tokenize(*text)
            else:
                found = tokenize(text) if isinstance(text, str) else tokenize(list(text), is_pretokenized=True)
        except BaseException as error:
            raise _panic(error, preprocessor.tokenizer) from error
        if isinstance(text, str | Pair):
            return Encoded(ids=tuple(found.ids), types=tuple(found.type_ids)), found
        words = tuple(-1 if word is None else word for word in found.word_ids)
        return Encoded(ids=tuple(found.ids), types=tuple(found.type_ids), words=words), found

    return one


def collate(preprocessor: Preprocessor, encoded: Sequence[Encoded], length: int | None = None) -> dict[str, Array]:
    """Feeds of one batch: arrays [len(encoded), bin], rows in order, padded on the right.

    Args:
        length: pad to exactly this instead of to the smallest bin.

    Raises:
        ValueError: the batch is empty, or its longest text is longer than `length`.
    """
    if not encoded:
        raise ValueError("a batch needs at least one text")
    longest = max(len(e.ids) for e in encoded)
    width = length or next((each for each in preprocessor.bins if each >= longest), preprocessor.bins[-1])
    if longest > width:
        raise ValueError(f"a text of {longest} tokens does not fit the length {width}")
    by_role = {role: np.zeros((len(encoded), width), dtype=np.int64) for role in get_args(Role)}
    by_role["ids"] += preprocessor.pad_id
    for row, item in enumerate(encoded):
        count = len(item.ids)
        by_role["ids"][row, :count] = item.ids
        by_role["mask"][row, :count] = 1
        by_role["types"][row, :count] = item.types
    return {i.name: by_role[i.role].astype(i.dtype, copy=False) for i in preprocessor.inputs}


def check_vocabulary(preprocessor: Preprocessor, embedding_rows: int) -> None:
    """Refuse a tokenizer that can give an id outside the model's token embedding.

    Args:
        embedding_rows: first dimension of the embedding table that the token ids are looked up in.

    Raises:
        ConfigError: names the largest id and the number of rows.
    """
    if preprocessor.largest_id >= embedding_rows:
        raise ConfigError(
            f"its ids go up to {preprocessor.largest_id}, but the model's token embedding has {embedding_rows} rows "
            f"(ids 0 to {embedding_rows - 1}).",
            file=preprocessor.tokenizer,
            key="tokenizer",
            hint="Use the tokenizer the model was trained with.",
        )


@functools.lru_cache(maxsize=8)
def _tokenizer(path: Path, sha256: str, max_length: int) -> Any:
    """The tokenizer with truncation at `max_length` and no padding; one per process and setting."""
    if file_digest(path) != sha256:
        raise ConfigError("changed since it was first read.", file=path, hint="Start again with the new file.")
    tokenizer = load_tokenizer(path)
    tokenizer.no_padding()
    try:
        tokenizer.enable_truncation(max_length)
    except BaseException as error:
        raise _panic(error, path) from error
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    if max_length <= special:  # the library would then cut nothing at all
        raise ConfigError(
            f"{max_length} tokens leave no room for text beside {special} special ones.", key="max_length"
        )
    return tokenizer


def load_tokenizer(path: Path) -> Any:
    """The library's tokenizer of a file that somebody else may have made.

    Raises:
        ConfigError: it cannot be read, is no tokenizer, or could make a text grow without a bound.
    """
    text = read_text(path, limit_bytes=MOST_TOKENIZER_BYTES, key="tokenizer")
    try:
        written = loads(text, once=False)  # the library's own reader says less of what is wrong
    except JsonError as error:
        raise ConfigError(f"not a tokenizer file: {error}.", file=path, key="tokenizer") from error
    if isinstance(written, dict):
        check_growth(written, path)
    try:
        return Tokenizer.from_str(text)
    except BaseException as error:
        raise _panic(error, path) from error


def _panic(error: BaseException, path: Path) -> BaseException:
    """What the library raises for a malformed part of its file: bare Exception, and what a Rust panic becomes, which is
    no Exception at all. Interrupts stay what they are."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return error
    return ConfigError(
        f"not a tokenizer file: {error}.",
        file=path,
        key="tokenizer",
        hint="Write it with `Tokenizer.save` of the tokenizers library.",
    )


def _pad_id(tokenizer: Any, path: Path) -> int:
    for token in _PAD_TOKENS:
        found = tokenizer.token_to_id(token)
        if found is not None:
            return int(found)
    raise ConfigError(
        f"has no padding token; looked for {', '.join(_PAD_TOKENS)}.",
        file=path,
        key="tokenizer",
        hint="Add one of them with `Tokenizer.add_special_tokens` and save the file again.",
    )
