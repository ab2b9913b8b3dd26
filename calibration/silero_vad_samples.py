"""Samples for the voice activity detector silero-vad: speech of espeak-ng with pauses, in noise.

    pip install silero-vad scipy && apt-get install espeak-ng
    python calibration/silero_vad_samples.py                           # model to .workbench/real-models/silero-vad/

A sample is two seconds of sound at 16 kHz as the 62 steps that the package itself would feed: 512 new values after the
64 last ones of the step before. The recurrent state begins with zeros and is carried from step to step (`state:` in
silero-vad.yaml). There are no labels: INT8 is held against the probabilities of the float model.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.signal import lfilter, resample_poly

SIZES = {"calibration": 48, "validation": 120, "holdout": 120, "unseen": 360}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
RATE, STEP, CONTEXT, STEPS = 16000, 512, 64, 62
VOICES = [f"{language}+{who}" for language in ("en-us", "en-gb", "de", "es", "fr") for who in ("m2", "m5", "f2", "f4")]
WORDS = (
    "seven quiet rivers carry paper boats under morning bridges while old clocks answer distant bells and nobody "
    "counts yellow windows along empty streets where trains sleep until another summer opens every door"
)
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/silero-vad/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    random = np.random.default_rng(SEEDS[split])
    for _ in range(SIZES[split]):
        sound = _sound(random, STEP * STEPS)
        before = np.concatenate([np.zeros(CONTEXT), sound])
        steps = np.stack([before[STEP * i : STEP * (i + 1) + CONTEXT] for i in range(STEPS)])
        yield {"input": steps.astype(np.float32)}, None


def _sound(random: np.random.Generator, length: int) -> np.ndarray:
    """Words and pauses, in white, pink or humming noise 0 to 40 dB below the words; one in eight is noise alone."""
    clean = np.zeros(length)
    at = int(random.uniform(0, 0.5) * RATE)
    while at < length:
        words = _speech(" ".join(random.choice(WORDS.split(), random.integers(1, 4))), random)[: length - at]
        clean[at : at + len(words)] = words
        at += len(words) + int(random.exponential(0.4) * RATE)
    noise = random.normal(size=length)
    kind = random.integers(3)
    if kind == 1:
        noise = lfilter([0.05], [1, -0.95], noise)
    elif kind == 2:
        noise = noise * 0.1 + np.sin(2 * np.pi * random.uniform(50, 400) * np.arange(length) / RATE)
    noise *= 10 ** (-random.uniform(0, 40) / 20) * 0.05 / noise.std()
    if random.random() < 0.125:
        clean[:] = 0
    return np.clip((clean + noise) * 10 ** (random.uniform(-15, 6) / 20), -1, 1)


def _speech(text: str, random: np.random.Generator) -> np.ndarray:
    command = ["espeak-ng", "-v", str(random.choice(VOICES)), "-s", str(random.integers(120, 220)),
               "-p", str(random.integers(20, 80)), "--stdout", text]  # fmt: skip
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes() or 1 << 24)
    sound = resample_poly(np.frombuffer(frames, np.int16) / 32768, RATE, rate)
    return sound * 0.05 / max(sound.std(), 1e-6)


def main() -> None:
    package = importlib.util.find_spec("silero_vad")
    if package is None or package.origin is None:
        raise SystemExit("silero-vad is not installed: pip install silero-vad")
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(package.origin).parent / "data/silero_vad.onnx", MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/silero-vad.yaml")


if __name__ == "__main__":
    main()
