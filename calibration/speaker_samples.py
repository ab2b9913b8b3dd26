"""Samples for Resemblyzer's voice encoder: 1.6 seconds of speech by one of sixty speakers, as a mel spectrogram.

    pip install --no-deps resemblyzer && pip install torch scipy && apt-get install espeak-ng
    python calibration/speaker_samples.py                       # model and samples to .workbench/real-models/speaker/

The package ships a checkpoint of torch and no ONNX file; it is exported once, an LSTM of three layers and a Linear.
The samples are written as NPZ files, an array [samples, 160, 40] by the input's name, because speaking takes long.
The output is an embedding of length 1: what counts is its direction, and whether the nearest others stay the nearest.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import wave
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

SIZES = {"calibration": 64, "validation": 200, "holdout": 200, "unseen": 600}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
RATE, HOP, FOURIER, MELS, FRAMES = 16000, 160, 400, 40, 160
LANGUAGES = ("en-us", "en-gb", "en-gb-scotland", "de", "es", "fr")
SPEAKERS = ("m1", "m2", "m3", "m4", "m5", "f1", "f2", "f3", "f4", "f5")
WORDS = (
    "seven quiet rivers carry paper boats under morning bridges while old clocks answer distant bells and nobody "
    "counts yellow windows along empty streets where trains sleep until another summer opens every door"
)
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/speaker/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    for mels, _ in utterances(split):
        yield {"mels": mels}, None


def utterances(split: str) -> Iterator[tuple[np.ndarray, str]]:
    """Mel spectrogram [160, 40] and who speaks."""
    random = np.random.default_rng(SEEDS[split])
    for _ in range(SIZES[split]):
        voice = f"{random.choice(LANGUAGES)}+{random.choice(SPEAKERS)}"
        sound = _speech(voice, " ".join(random.choice(WORDS.split(), 7)), random)[: (FRAMES - 1) * HOP]
        sound = sound + random.normal(0, random.uniform(0, 0.003), sound.shape)
        yield _mels(sound * 10 ** (random.uniform(-6, 6) / 20)), voice


def _speech(voice: str, text: str, random: np.random.Generator) -> np.ndarray:
    speed, pitch = str(random.integers(140, 200)), str(random.integers(35, 65))
    command = ["espeak-ng", "-v", voice, "-s", speed, "-p", pitch, "--stdout", text]
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes() or 1 << 24)
    sound = resample_poly(np.frombuffer(frames, np.int16) / 32768, RATE, rate)
    return sound * 0.05 / max(sound.std(), 1e-6)


def _mels(sound: np.ndarray) -> np.ndarray:
    """Powers of the short Fourier transform, summed by librosa's mel filters; not their logarithm."""
    framed = np.lib.stride_tricks.sliding_window_view(np.pad(sound, FOURIER // 2), FOURIER)[::HOP][:FRAMES]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FOURIER) / FOURIER)
    powers = np.abs(np.fft.rfft(framed * window)) ** 2
    return (powers @ _filters()).astype(np.float32)


@cache
def _filters() -> np.ndarray:
    """[frequencies, mels]: triangles of equal area on Slaney's scale, linear to 1 kHz and logarithmic above."""
    per_mel, knee = 200 / 3, 15.0
    top = knee + np.log(RATE / 2 / 1000) / (np.log(6.4) / 27)
    mels = np.linspace(0, top, MELS + 2)
    edges = np.where(mels < knee, mels * per_mel, 1000 * np.exp((np.log(6.4) / 27) * (mels - knee)))
    frequencies = np.fft.rfftfreq(FOURIER, 1 / RATE)[:, None]
    rising = (frequencies - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])


def main() -> None:
    import torch

    package = importlib.util.find_spec("resemblyzer")
    if package is None or package.origin is None:
        raise SystemExit("resemblyzer is not installed: pip install --no-deps resemblyzer")
    weights = torch.load(Path(package.origin).parent / "pretrained.pt", map_location="cpu")["model_state"]

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(MELS, 256, 3, batch_first=True)
            self.linear = torch.nn.Linear(256, 256)

        def forward(self, mels: torch.Tensor) -> torch.Tensor:
            raw = torch.relu(self.linear(self.lstm(mels)[1][0][-1]))
            return raw / torch.norm(raw, dim=1, keepdim=True)

    encoder = Encoder().eval()
    encoder.load_state_dict(weights, strict=False)
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        encoder,
        (torch.zeros(2, FRAMES, MELS),),
        str(MODEL),
        input_names=["mels"],
        output_names=["embedding"],
        dynamic_axes={"mels": {0: "batch"}, "embedding": {0: "batch"}},
        dynamo=False,
    )
    for split in SIZES:
        np.savez(MODEL.with_name(f"{split}.npz"), mels=np.stack([feeds["mels"] for feeds, _ in samples(split)]))
    print(f"{MODEL} and {', '.join(SIZES)}.npz beside it; now: workbench sweep experiments/speaker.yaml")


if __name__ == "__main__":
    main()
