"""Pages through PP-OCR: where text stands, which way up it is, what it says. Samples, glue and metric of the pipeline.

    pip install pillow rapidocr-onnxruntime
    python calibration/page_ocr.py                     # models to .workbench/real-models/page-ocr/

A request is a page as it was scanned. The detector answers with a picture of where text is; each region of it is cut
out, turned where the direction classifier says so, and read.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIZES = {"calibration": 24, "validation": 120, "holdout": 120}
SEEDS = {"calibration": 1, "validation": 2, "holdout": 3}
HIGH, WIDE = 320, 480
FONTS = Path("/usr/share/fonts")
FOLDER = Path(__file__).resolve().parents[1] / ".workbench/real-models/page-ocr"
WORDS = (
    "Invoice Total Amount Date Paid Street Account Number Order Customer Price Discount Tax Balance Due Branch Manager "
    "Signature London Berlin Madrid Shanghai January March October Contract Loan Interest Monthly Payment"
).split()
LEAST_PROBABILITY, LEAST_PIXELS, UNCLIP, SURE = 0.3, 40, 1.6, 0.9
LINE, WIDEST = 48, 480


# --- requests ---------------------------------------------------------------------------------------------------------


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], list[dict[str, object]]]]:
    random = np.random.default_rng(SEEDS[split])
    fonts = sorted(path for name in ("DejaVuSans", "Liberation*") for path in FONTS.rglob(f"{name}.ttf"))
    if not fonts:
        raise RuntimeError(f"no DejaVu or Liberation fonts below {FONTS}: apt-get install fonts-dejavu")
    for _ in range(SIZES[split]):
        image, lines = _page([str(font) for font in fonts], random)
        yield {"image": image}, lines


def _page(fonts: list[str], random: np.random.Generator) -> tuple[np.ndarray, list[dict[str, object]]]:
    paper = int(random.integers(190, 256))
    page = Image.new("L", (WIDE, HIGH), paper)
    lines: list[dict[str, object]] = []
    top = int(random.integers(8, 24))
    while top < HIGH - 44:
        text = _text(random)
        font = ImageFont.truetype(str(random.choice(fonts)), int(random.integers(15, 27)))
        left, up, right, down = (int(edge) for edge in font.getbbox(text))
        wide, high = right - left, down - up
        x = int(random.integers(8, max(9, WIDE - wide - 8)))
        strip = Image.new("L", (wide, high), paper)
        ImageDraw.Draw(strip).text((-left, -up), text, font=font, fill=int(random.integers(0, 90)))
        page.paste(strip.rotate(180) if random.random() < 0.25 else strip, (x, top))
        lines.append({"text": text, "box": [x, top, x + wide, top + high]})
        top += high + int(random.integers(16, 40))
    page = page.filter(ImageFilter.GaussianBlur(random.uniform(0, 0.8)))
    noise = random.normal(0, random.uniform(0, 14), (HIGH, WIDE))
    grey = np.clip(np.asarray(page) + noise, 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2), lines


def _text(random: np.random.Generator) -> str:
    kinds = [
        lambda: str(random.choice(WORDS)),
        lambda: f"{random.integers(1, 100000) / 100:.2f}",
        lambda: f"{random.integers(2000, 2030)}-{random.integers(1, 13):02d}-{random.integers(1, 29):02d}",
    ]
    return " ".join(kinds[random.integers(3)]() for _ in range(random.integers(1, 4)))


# --- glue -------------------------------------------------------------------------------------------------------------


def page(request):
    """The picture as the detector takes it."""
    return [{"x": _normalized(request["image"])}]


def lines(request, detect):
    """Every line as the direction classifier takes it."""
    return [{"x": _resized(crop, 192)} for crop in _crops(request, detect)]


def upright(request, detect, classify):
    """Every line as the recognizer takes it, turned where the classifier is sure that it stands on its head."""
    pairs = zip(_crops(request, detect), classify, strict=True)
    return [{"x": _resized(crop[::-1, ::-1] if _turned(said) else crop, None)} for crop, said in pairs]


def texts(request, detect, read):
    """The page's lines from top to bottom."""
    return {"lines": [_read(said) for said in read], "boxes": [list(box) for box in _boxes(detect)]}


def _crops(request, detect):
    return [request["image"][top:bottom, left:right] for left, top, right, bottom in _boxes(detect)]


def _boxes(detect):
    """Regions over the threshold, grown as the package grows them."""
    from scipy import ndimage

    (found,) = detect
    probable = next(iter(found.values()))[0]
    labels, _ = ndimage.label(probable > LEAST_PROBABILITY)
    boxes = []
    for rows, columns in ndimage.find_objects(labels):
        high, wide = rows.stop - rows.start, columns.stop - columns.start
        if high * wide < LEAST_PIXELS or min(high, wide) < 3:
            continue
        more = round(high * wide * UNCLIP / (2 * (high + wide)))
        left, top = max(0, columns.start - more), max(0, rows.start - more)
        boxes.append((left, top, min(WIDE, columns.stop + more), min(HIGH, rows.stop + more)))
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def _turned(said):
    upside_down = next(iter(said.values()))[1]
    return upside_down > SURE


def _resized(crop, wide):
    """[3, 48, width]: as wide as the line is, or padded to a width."""
    own = max(16, round(LINE * crop.shape[1] / crop.shape[0]))
    fits = min(own, wide or WIDEST)
    pixels = np.asarray(Image.fromarray(np.ascontiguousarray(crop)).resize((fits, LINE), Image.Resampling.BILINEAR))
    made = np.zeros((3, LINE, wide or fits), np.float32)
    made[..., :fits] = _normalized(pixels)
    return made


def _normalized(pixels):
    return ((pixels.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)


def _read(said):
    """The text of CTC's classes: repeats and blanks are left out."""
    classes = next(iter(said.values())).argmax(axis=-1)
    kept = classes[np.flatnonzero(np.diff(classes, prepend=-1))]
    return "".join(_symbols()[int(each)] for each in kept if each)


@functools.cache
def _symbols():
    return json.loads(Path(__file__).with_name("page_ocr_symbols.json").read_text(encoding="utf-8"))


# --- metric -----------------------------------------------------------------------------------------------------------


def page_errors(outputs, targets):
    """Characters wrong by page, beside how many were printed; and lines found, of those printed."""
    wrong, printed, found = [], [], []
    for answer, lines in zip(outputs, targets, strict=True):
        left = list(zip(answer["boxes"], answer["lines"], strict=True))
        errors, hits = 0, 0
        for line in lines:
            overlaps = [_overlap(box, line["box"]) for box, _ in left]
            best = int(np.argmax(overlaps)) if left else 0
            if left and overlaps[best] > 0.3:
                errors += _distance(left.pop(best)[1], line["text"])
                hits += 1
            else:
                errors += len(line["text"])
        printed.append(sum(len(line["text"]) for line in lines))
        wrong.append(min(errors + sum(len(text) for _, text in left), printed[-1]))  # a share, so at most all
        found.append(hits)
    counts = np.array([len(lines) for lines in targets], float)
    return {"cer": (np.array(wrong, float), np.array(printed, float)), "lines_found": (np.array(found, float), counts)}


def _overlap(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, wide) * max(0, high)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def _distance(a, b):
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def main() -> None:
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise SystemExit("rapidocr-onnxruntime is not installed: pip install --no-deps rapidocr-onnxruntime")
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = {"det": "PP-OCRv4_det", "cls": "ppocr_mobile_v2.0_cls", "rec": "PP-OCRv4_rec"}
    for name, file in files.items():
        shutil.copyfile(Path(package.origin).parent / f"models/ch_{file}_infer.onnx", FOLDER / f"{name}.onnx")
    import onnx

    listed = {entry.key: entry.value for entry in onnx.load(FOLDER / "rec.onnx").metadata_props}
    symbols = ["", *listed["character"].splitlines(), " "]  # the blank of CTC stands first, the space last
    # beside the glue, which names it: so it goes into the bundle
    beside = Path(__file__).with_name("page_ocr_symbols.json")
    beside.write_text(json.dumps(symbols, ensure_ascii=False), encoding="utf-8")
    print(f"{FOLDER}; now: workbench sweep experiments/page-ocr.yaml")


if __name__ == "__main__":
    main()
