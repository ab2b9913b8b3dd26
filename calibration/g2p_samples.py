"""Samples for the pronunciation model of hibari-tts: English words, each as long as it is.

    pip install hibari-tts
    python calibration/g2p_samples.py                           # model to .workbench/real-models/g2p/

The model reads one word at a call, as letters by number, and answers with four places a letter, each a sound by number
or the blank: its arg max is inside the graph. Its numbers have no order, so that two answers are equal or they are not.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZES = {"calibration": 128, "validation": 400, "holdout": 400, "unseen": 1600}
LONGEST = 24
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/g2p/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    assets = _assets()
    numbers = {letter: i + 1 for i, letter in enumerate(json.loads((assets / "oov.json").read_text("utf-8"))["in"])}
    with gzip.open(assets / "lexicon_us_gold.json.gz", "rt", encoding="utf-8") as file:
        words = [word for word in json.load(file) if word.isalpha() and word.islower() and 2 < len(word) <= LONGEST]
    order = np.random.default_rng(0).permutation(len(words))
    start = sum(size for name, size in SIZES.items() if list(SIZES).index(name) < list(SIZES).index(split))
    for at in order[start : start + SIZES[split]]:
        yield {"chars": np.array([numbers[letter] for letter in words[at] if letter in numbers], np.int64)}, None


def _assets() -> Path:
    package = importlib.util.find_spec("hibari")
    if package is None or package.origin is None:
        raise RuntimeError("hibari-tts is not installed: pip install hibari-tts")
    return Path(package.origin).parent / "assets"


def main() -> None:
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_assets() / "oov.onnx", MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/g2p.yaml")


if __name__ == "__main__":
    main()
