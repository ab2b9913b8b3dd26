"""Samples for the face detector RFB-320: photographs with faces at random places, sizes and light.

    pip install scikit-image scikit-learn pillow
    python calibration/face_rfb320_samples.py version-RFB-320.onnx   # model to .workbench/real-models/face-rfb320/

The model is models/onnx/version-RFB-320.onnx of github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB (MIT).
Backgrounds are the photographs that scikit-image and scikit-learn ship; faces are the astronaut of scikit-image and
the hundred small grey faces of its `lfw_subset`. There are no labels: INT8 is held against the float detections.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import skimage.data
import sklearn.datasets
from PIL import Image

SIZES = {"calibration": 96, "validation": 240, "holdout": 240, "unseen": 720}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
HEIGHT, WIDTH = 240, 320
FACE = (slice(15, 215), slice(140, 310))  # where the astronaut's head is
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/face-rfb320/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    random = np.random.default_rng(SEEDS[split])
    backgrounds = _backgrounds()
    faces = np.round(skimage.data.lfw_subset()[:100] * 255).astype(np.uint8)  # the second hundred are no faces
    astronaut = skimage.data.astronaut()
    for _ in range(SIZES[split]):
        if random.random() < 0.3:  # the astronaut's whole photograph, cut at random around the head
            picture = _cut(astronaut, random, keep=FACE)
        else:
            picture = _cut(backgrounds[random.integers(len(backgrounds))], random)
            for left in random.permutation(3)[: random.integers(0, 4)]:
                face = astronaut[FACE] if random.random() < 0.4 else faces[random.integers(100)]
                _paste(picture, face, 107 * left, random)
        if random.random() < 0.5:
            picture = picture[:, ::-1]
        noise = random.uniform(0, 0.03) * random.standard_normal(picture.shape, np.float32)
        light, contrast = random.uniform(-0.15, 0.15), random.uniform(0.7, 1.3)
        picture = (picture - 0.5) * contrast + 0.5 + light + noise
        pixels = np.round(np.clip(picture, 0, 1) * 255)
        yield {"input": ((pixels - 127) / 128).transpose(2, 0, 1).astype(np.float32)}, None


def _backgrounds() -> list[np.ndarray]:
    shipped = skimage.data
    photographs = [shipped.chelsea(), shipped.coffee(), shipped.rocket(), shipped.stereo_motorcycle()[0]]
    return [*photographs, *sklearn.datasets.load_sample_images().images]


def _cut(photograph: np.ndarray, random: np.random.Generator, keep: tuple[slice, slice] | None = None) -> np.ndarray:
    """A random window of the model's proportions, resized; with `keep` one that holds this region."""
    high, wide = photograph.shape[:2]
    least = 0.4 if keep is None else max(keep[0].stop / high, keep[1].stop / wide)
    size = random.uniform(least, 1.0)
    tall = int(min(high, wide * HEIGHT / WIDTH) * size) if keep is None else int(high * size)
    broad = min(wide, int(tall * WIDTH / HEIGHT))
    if keep is None:
        top, left = random.integers(high - tall + 1), random.integers(wide - broad + 1)
    else:
        top = 0
        left = random.integers(max(0, keep[1].stop - broad), min(keep[1].start, wide - broad) + 1)
    return _resized(photograph[top : top + tall, left : left + broad], HEIGHT, WIDTH)


def _paste(picture: np.ndarray, face: np.ndarray, left: int, random: np.random.Generator) -> None:
    tall = int(random.uniform(40, 150))
    broad = min(100, int(tall * face.shape[1] / face.shape[0]))
    small = _resized(face, tall, broad)
    if small.ndim == 2:
        small = small[..., None] * random.uniform([0.9, 0.7, 0.6], [1.0, 0.9, 0.85])
    top = random.integers(HEIGHT - tall + 1)
    picture[top : top + tall, left : left + broad] = small[:, : WIDTH - left]


def _resized(picture: np.ndarray, high: int, wide: int) -> np.ndarray:
    resized = Image.fromarray(picture).resize((wide, high), Image.Resampling.BILINEAR)
    return np.asarray(resized, np.float32) / 255


def main() -> None:
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sys.argv[1], MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/face-rfb320.yaml")


if __name__ == "__main__":
    main()
