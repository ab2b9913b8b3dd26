"""Samples for PP-OCR's text detector: small printed pages of two shapes.

    pip install pillow rapidocr-onnxruntime
    python calibration/ocr_pages_samples.py                     # model to .workbench/real-models/ocr-pages/

The detector answers with a picture of its own: how probable text is at every pixel. There are no labels: INT8 is held
against the pixels over 0.3 of the float model, which is where the package draws its boxes.
"""

from __future__ import annotations

import importlib.util
import shutil
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIZES = {"calibration": 32, "validation": 80, "holdout": 80, "unseen": 240}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
SHAPES = ((320, 480), (480, 320))  # height and width, multiples of 32
FONTS = Path("/usr/share/fonts")
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/ocr-pages/model.onnx"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], None]]:
    random = np.random.default_rng(SEEDS[split])
    fonts = sorted(path for name in ("DejaVu*", "Liberation*") for path in FONTS.rglob(f"{name}.ttf"))
    if not fonts:
        raise RuntimeError(f"no DejaVu or Liberation fonts below {FONTS}: apt-get install fonts-dejavu")
    for _ in range(SIZES[split]):
        pixels = _page(SHAPES[random.integers(2)], [str(font) for font in fonts], random)
        yield {"x": ((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1).astype(np.float32)}, None


def _page(shape: tuple[int, int], fonts: list[str], random: np.random.Generator) -> np.ndarray:
    high, wide = shape
    paper = tuple(int(c) for c in random.integers(160, 256, 3))
    image = Image.new("RGB", (wide, high), paper)
    draw = ImageDraw.Draw(image)
    letters = list(string.ascii_letters + string.digits + "     .,-:")
    top = int(random.integers(5, 40))
    while top < high - 30:
        font = ImageFont.truetype(str(random.choice(fonts)), int(random.integers(11, 34)))
        text = "".join(random.choice(letters, random.integers(3, 25))).strip() or "a"
        ink = tuple(int(c) for c in random.integers(0, 120, 3))
        draw.text((int(random.integers(5, wide // 2)), top), text, font=font, fill=ink)
        top += int(font.size * random.uniform(1.3, 3.0))
    for _ in range(random.integers(0, 4)):  # rules, frames and stamps, which are no text
        x, y = int(random.integers(wide)), int(random.integers(high))
        far = (x + int(random.integers(20, 150)), y + int(random.integers(5, 80)))
        draw.rectangle((x, y, *far), outline=tuple(int(c) for c in random.integers(0, 200, 3)), width=2)
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.0)))
    noise = random.normal(0, random.uniform(0, 15), (high, wide, 3))
    return np.clip(np.asarray(image) + noise, 0, 255)


def main() -> None:
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise SystemExit("rapidocr-onnxruntime is not installed: pip install rapidocr-onnxruntime")
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(package.origin).parent / "models/ch_PP-OCRv4_det_infer.onnx", MODEL)
    print(f"{MODEL}; now: workbench sweep experiments/ocr-pages.yaml")


if __name__ == "__main__":
    main()
