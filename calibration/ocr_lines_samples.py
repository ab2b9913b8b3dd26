"""Samples for PP-OCR's text recognizer: printed lines of words and numbers, each as wide as it is. With their text.

    pip install pillow rapidocr-onnxruntime
    python calibration/ocr_lines_samples.py                     # model to .workbench/real-models/ocr-lines/

A line is 48 pixels high. The recognizer reads any width; widths are padded to the bins of ocr-lines.yaml, as the
package pads a batch to its widest line. The target is the text; symbols.json has the character of every output class,
as the model's file lists them.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIZES = {"calibration": 64, "validation": 200, "holdout": 200, "unseen": 600}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
HEIGHT = 48
FONTS = Path("/usr/share/fonts")
MODEL = Path(__file__).resolve().parents[1] / ".workbench/real-models/ocr-lines/model.onnx"
WORDS = (
    "Invoice Total Amount Date Paid Street Account Number Order Customer Price Discount Tax Balance Due Branch Manager "
    "Signature London Berlin Madrid Shanghai January March October Contract Loan Interest Monthly Payment"
)


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], str]]:
    random = np.random.default_rng(SEEDS[split])
    fonts = sorted(path for name in ("DejaVu*", "Liberation*") for path in FONTS.rglob(f"{name}.ttf"))
    if not fonts:
        raise RuntimeError(f"no DejaVu or Liberation fonts below {FONTS}: apt-get install fonts-dejavu")
    for _ in range(SIZES[split]):
        text = _text(random)
        yield {"x": _prepared(_line(text, str(random.choice(fonts)), random))}, text


def _text(random: np.random.Generator) -> str:
    kinds = [
        lambda: str(random.choice(WORDS.split())),
        lambda: f"{random.integers(1, 100000) / 100:.2f}",
        lambda: f"{random.integers(2000, 2030)}-{random.integers(1, 13):02d}-{random.integers(1, 29):02d}",
        lambda: f"{random.integers(10**8):08d}",
    ]
    return " ".join(kinds[random.integers(4)]() for _ in range(random.integers(1, 4)))


def _line(text: str, font: str, random: np.random.Generator) -> Image.Image:
    drawn = ImageFont.truetype(font, int(random.integers(14, 40)))
    left, top, right, bottom = drawn.getbbox(text)
    edge = int(random.integers(2, 8))
    paper, ink = int(random.integers(150, 256)), int(random.integers(0, 120))
    image = Image.new("L", (int(right - left) + 2 * edge, int(bottom - top) + 2 * edge), paper)
    ImageDraw.Draw(image).text((edge - left, edge - top), text, font=drawn, fill=ink)
    image = image.rotate(random.uniform(-1.5, 1.5), fillcolor=paper, resample=Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.3)))
    noise = random.normal(0, random.uniform(0, 25), (image.height, image.width))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def _prepared(line: Image.Image) -> np.ndarray:
    wide = max(16, round(HEIGHT * line.width / line.height))
    pixels = np.asarray(line.resize((wide, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    return np.repeat(((pixels / 255 - 0.5) / 0.5)[None], 3, axis=0)


def main() -> None:
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise SystemExit("rapidocr-onnxruntime is not installed: pip install rapidocr-onnxruntime")
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(package.origin).parent / "models/ch_PP-OCRv4_rec_infer.onnx", MODEL)
    import onnx

    listed = {entry.key: entry.value for entry in onnx.load(MODEL).metadata_props}
    symbols = ["", *listed["character"].splitlines(), " "]  # the blank of CTC stands first, the space last
    MODEL.with_name("symbols.json").write_text(json.dumps(symbols, ensure_ascii=False), encoding="utf-8")
    print(f"{MODEL}; now: workbench sweep experiments/ocr-lines.yaml")


if __name__ == "__main__":
    main()
