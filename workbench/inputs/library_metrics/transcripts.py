"""Error rates of transcripts, by jiwer: edits over words or characters, summed over samples.

Output: texts by number ('ids', each up to the first `blank`), letters' scores at every step ('ctc': the best of each
step, repeats and blanks dropped), or texts. `symbols` is a JSON list, or an object of symbol → number. Targets are
texts, or numbers as the output has them; without targets the float model's own transcript is the right one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np

Outputs = Mapping[str, np.ndarray[Any, Any]]
Fractions = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _rate(
    process: Callable[[str, str], Any],
    outputs: Outputs,
    targets: Sequence[Any] | None,
    reference: Outputs | None,
    options: dict[str, Any],
) -> Fractions:
    said = _texts(outputs, options)
    if targets is not None and all(target is not None for target in targets):
        symbols = _symbols(options)
        right = [
            target if isinstance(target, str) else _spelt(np.asarray(target).reshape(-1), symbols, options)
            for target in targets
        ]
    elif reference is not None:
        right = _texts(reference, options)
    else:
        raise ValueError("there are neither targets nor the float model's outputs")
    edits, counts = np.zeros(len(said)), np.zeros(len(said))
    for row, (text, truth) in enumerate(zip(said, right, strict=True)):
        if not truth.strip():  # jiwer refuses an empty truth; every word said is then an insertion
            edits[row] = len(text.split()) if process is jiwer.process_words else len(text)
            continue
        found = process(truth, text)
        edits[row] = found.substitutions + found.deletions + found.insertions
        counts[row] = found.hits + found.substitutions + found.deletions
    return edits, counts


wer = functools.partial(_rate, jiwer.process_words)
cer = functools.partial(_rate, jiwer.process_characters)


def _texts(outputs: Outputs, options: dict[str, Any]) -> list[str]:
    name = options.get("output") or next(iter(outputs))
    array = outputs[name]
    how = options.get("decode") or ("text" if array.dtype.kind in "US" else "ctc" if array.ndim == 3 else "ids")
    if how == "text":
        return [str(text) for text in array.reshape(len(array), -1)[:, 0]]
    symbols, blank = _symbols(options), int(options.get("blank", 0))
    if how == "ctc":
        best = array.argmax(axis=-1)
        kept = (np.diff(best, axis=1, prepend=-1) != 0) & (best != blank)  # of equal steps in a row the first
        rows = zip(best, kept, strict=True)
        return ["".join(_symbol(symbols, i) for i in row[which].tolist()) for row, which in rows]
    return [_spelt(row, symbols, options) for row in array.reshape(len(array), -1)]


def _spelt(row: np.ndarray[Any, Any], symbols: Mapping[int, str] | None, options: dict[str, Any]) -> str:
    numbers = row.tolist()
    if "blank" in options and options["blank"] in numbers:
        numbers = numbers[: numbers.index(options["blank"])]
    return "".join(_symbol(symbols, i) for i in numbers)


def _symbol(symbols: Mapping[int, str] | None, number: int) -> str:
    if symbols is None:
        return chr(0xE000 + number) if number < 6000 else f"<{number}>"  # any mark: equal numbers are equal letters
    if number not in symbols:
        raise ValueError(f"the output has symbol {number}; the file of symbols has {min(symbols)} to {max(symbols)}")
    return symbols[number]


def _symbols(options: dict[str, Any]) -> Mapping[int, str] | None:
    if not options.get("symbols"):
        return None
    written = json.loads(Path(options["symbols"]).read_text(encoding="utf-8"))
    pairs = enumerate(written) if isinstance(written, list) else ((int(i), text) for text, i in written.items())
    return {i: str(text) for i, text in pairs}
