"""How two models' answers agree, written down once more: plain loops, checked against nothing of the product.

Each gives for one sample (numerator, denominator); the measure of a set is the ratio of their sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Fraction = tuple[float, float]


def right(logits: Array, label: int) -> Fraction:
    return float(int(np.argmax(logits)) == label), 1.0


def faces(boxes: Array, scores: Array) -> list[Array]:
    """Published post-processing of RFB-320: face score over 0.7, suppression at IoU 0.5."""
    order = sorted(np.flatnonzero(scores[:, 1] > 0.7), key=lambda i: -scores[i, 1])
    kept: list[Array] = []
    for i in order:
        if all(iou(boxes[i], other) <= 0.5 for other in kept):
            kept.append(boxes[i])
    return kept


def iou(a: Array, b: Array) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    common = float(wide * high)
    return common / (float((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])) - common)


def found_again(ours: list[Array], theirs: list[Array]) -> int:
    free = list(theirs)
    matched = 0
    for box in ours:
        best = max(range(len(free)), key=lambda i: iou(box, free[i]), default=None)
        if best is not None and iou(box, free[best]) >= 0.5:
            del free[best]
            matched += 1
    return matched


def flips(ours: Array, theirs: Array, threshold: float) -> Fraction:
    """Decisions that stay."""
    return float(((ours > threshold) == (theirs > threshold)).sum()), float(ours.size)


def mask_iou(ours: Array, theirs: Array, threshold: float) -> Fraction:
    mine, other = ours > threshold, theirs > threshold
    union = float((mine | other).sum())
    return (float((mine & other).sum()) / union, 1.0) if union else (0.0, 0.0)


def cosine(ours: Array, theirs: Array) -> Fraction:
    a, b = ours.ravel().astype(np.float64), theirs.ravel().astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b))), 1.0


def edits(ours: str, theirs: str) -> int:
    """Insertions, deletions and substitutions from one to the other."""
    row = list(range(len(theirs) + 1))
    for i, a in enumerate(ours, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(theirs, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def log_mel(ours: Array, theirs: Array, rate: int) -> Fraction:
    """Mean distance in dB of 80 mel bands by librosa, over the part that both sounds have."""
    import librosa

    length = min(ours.size, theirs.size)
    a, b = (
        20 * np.log10(np.maximum(1e-5, _bands(librosa, sound.ravel()[:length].astype(np.float64), rate)))
        for sound in (ours, theirs)
    )
    return float(np.abs(a - b).mean()), 1.0


def _bands(librosa: Any, sound: Array, rate: int) -> Array:
    spectrum = np.abs(librosa.stft(sound, n_fft=1024, hop_length=256, center=False)) / 256
    filters = librosa.filters.mel(sr=rate, n_fft=1024, n_mels=80, norm=None)
    weights = filters.sum(axis=1, keepdims=True)
    weights[weights == 0] = 1.0
    bands: Array = (filters / weights) @ spectrum
    return bands
