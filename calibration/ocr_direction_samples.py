"""Samples for PP-OCR's text direction classifier: printed lines, every second one upside down. With labels.

    pip install pillow rapidocr-onnxruntime
    python calibration/ocr_direction_samples.py                 # model to .workbench/real-models/ocr-direction/

A line is prepared as the package does it: 48 pixels high, at most 192 wide, the rest grey. Fonts are those of the
machine; on Debian `apt-get install fonts-dejavu fonts-liberation`.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIZES = {"calibration": 96, "validation": 600, "holdout": 600, "unseen": 2400}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
HEIGHT, WIDTH = 48, 192
FONTS = Path("/usr/share/fonts")
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/ocr-direction/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    random = np.random.default_rng(SEEDS[split])
    fonts = sorted(path for name in ("DejaVu*", "Liberation*") for path in FONTS.rglob(f"{name}.ttf"))
    if not fonts:
        raise RuntimeError(f"no DejaVu or Liberation fonts below {FONTS}: apt-get install fonts-dejavu")
    for _ in range(SIZES[split]):
        line = _line(str(random.choice(fonts)), random)
        turned = int(random.integers(2))
        yield {"x": _prepared(line.rotate(180) if turned else line)}, turned


def _line(font: str, random: np.random.Generator) -> Image.Image:
    letters = list(string.ascii_letters + string.digits + "    .,-:")
    text = "".join(random.choice(letters, random.integers(3, 15))).strip() or "a"
    drawn = ImageFont.truetype(font, int(random.integers(14, 40)))
    left, top, right, bottom = drawn.getbbox(text)
    edge = int(random.integers(2, 8))
    paper, ink = int(random.integers(150, 256)), int(random.integers(0, 100))
    image = Image.new("L", (int(right - left) + 2 * edge, int(bottom - top) + 2 * edge), paper)
    ImageDraw.Draw(image).text((edge - left, edge - top), text, font=drawn, fill=ink)
    image = image.rotate(random.uniform(-3, 3), fillcolor=paper, resample=Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.2)))
    noise = random.normal(0, random.uniform(0, 20), (image.height, image.width))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def _prepared(line: Image.Image) -> np.ndarray:
    wide = min(WIDTH, math.ceil(HEIGHT * line.width / line.height))
    pixels = np.asarray(line.resize((wide, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    prepared = np.zeros((3, HEIGHT, WIDTH), np.float32)
    prepared[:, :, :wide] = (pixels / 255 - 0.5) / 0.5
    return prepared


def main() -> None:
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise SystemExit("rapidocr-onnxruntime is not installed: pip install rapidocr-onnxruntime")
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(package.origin).parent / "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/ocr-direction.yaml")


if __name__ == "__main__":
    main()
