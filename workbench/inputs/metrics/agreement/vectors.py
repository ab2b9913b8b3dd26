"""Agreement of numbers that are compared by distance: embeddings, values of any kind, states, waveforms."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.judge import (
    DISTANCES,
    Array,
    Floats,
    Fractions,
    Judge,
    MetricSpec,
    Outputs,
    columns,
    cosines,
    distances,
    finite,
    flat,
    output_of,
)
from workbench.values.errors import ConfigError
from workbench.values.interface import OutputUse

GALLERY = 512
"""Neighbours are looked for among so many samples before this one."""


class ValuesJudge(Judge):
    """Numbers of any kind, and states: the error beside the size of the float model's numbers."""

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(
                name="relative_error",
                about=f"sum of absolute errors over the sum of {whose} absolute values",
                higher=False,
                bounds=None,
            ),
            *DISTANCES,
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = self.pair(outputs, reference, batch)
        cosine, largest, mean = distances(ours, theirs, batch)
        return columns((mean[0], np.abs(flat(theirs, batch)).sum(axis=1)), cosine, largest, mean)


class EmbeddingJudge(Judge):
    """Vectors [n, ...]: their direction, and whether they have the same nearest neighbours.

    Neighbours are the `k` (10) samples, among up to `GALLERY` before this one, whose vectors of the same model point
    most alike. Samples with no more than `k` before them have nothing to rank and are left out. It remembers what it
    saw, so it must see a split from its beginning and in order.
    """

    can_have_labels = False

    def __init__(self, *, use: OutputUse) -> None:
        super().__init__(use=use)
        self._ours, self._theirs = np.zeros((0, 0)), np.zeros((0, 0))

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            DISTANCES[0],
            MetricSpec(name="neighbour_recall", about=f"nearest neighbours that are {whose} too"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = (flat(array, batch) for array in self.pair(outputs, reference, batch))
        k = max(1, round(self.number("k", 10)))
        found, wanted = np.zeros(len(batch)), np.zeros(len(batch))
        for row in range(len(batch)):
            if len(self._ours) > k and self._ours.shape[1] == ours.shape[1]:
                near = _nearest(self._ours, ours[row], k)
                found[row], wanted[row] = len(near & _nearest(self._theirs, theirs[row], k)), k
            self._ours = _grown(self._ours, ours[row])
            self._theirs = _grown(self._theirs, theirs[row])
        return columns((cosines(ours, theirs), 1.0), (found, wanted))


def _grown(gallery: Floats, vector: Floats) -> Floats:
    unit = vector / (float(np.linalg.norm(vector)) or 1.0)
    if gallery.shape[1] != len(unit):  # vectors of another length cannot be ranked beside these
        return unit[None]
    return np.concatenate([gallery[-(GALLERY - 1) :], unit[None]])


def _nearest(gallery: Floats, vector: Floats, k: int) -> set[int]:
    return set(np.argsort(-(gallery @ vector), kind="stable")[:k].tolist())


FRAME, HOP, BANDS = 1024, 256, 80
"""Of the mel spectrum, as vocoders use them."""
MOST_DB = 100.0
"""What a signal without any error is given instead of an infinite ratio."""
_FLOOR = 1e-5
"""Amplitudes below are not told apart: 100 dB under full scale."""


class SignalJudge(Judge):
    """Waveforms [n, ..., samples].

    Where the two differ in length (a model may decide how long it speaks), the shorter one is filled with silence for
    the ratio and the cosine, so that what is missing is an error, and spectra are compared over the frames that both
    have; `length_agreement` says how much that is. `rate` is the sampling rate (16000).
    """

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="log_mel", about="mean distance of log-mel spectra", unit="dB", higher=False, bounds=None),
            MetricSpec(name="snr", about="signal over error, at most 100 dB", unit="dB", bounds=(-MOST_DB, MOST_DB)),
            DISTANCES[0],
            MetricSpec(name="length_agreement", about="shorter length over the longer"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        name = self.use.name
        mine, other = (finite(output_of(of, name), name, batch).reshape(len(batch), -1) for of in (outputs, reference))
        width = max(mine.shape[1], other.shape[1])
        ours, theirs = (np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in (mine, other))
        common = min(mine.shape[1], other.shape[1])
        if (rate := self.number("rate", 16000.0)) <= 0:
            raise ConfigError(f"{rate:g} is no sampling rate.", key=f"outputs.{name}.rate")
        far = np.abs(log_mel(mine[:, :common], rate) - log_mel(other[:, :common], rate)).mean(axis=(1, 2))
        return columns(
            (far, 1.0),
            (_ratios_db(ours, theirs), 1.0),
            (cosines(ours, theirs), 1.0),
            (np.full(len(batch), common / width if width else 1.0), 1.0),
        )

    def truth(self, label: Any, shape: tuple[int, ...], sample: int) -> Array:
        """A waveform may be of another length than the model's."""
        return self.numbers(label, sample).reshape(1, -1)


def log_mel(signals: Floats, rate: float) -> Floats:
    """[n, frames, bands] in dB: magnitudes of Hann-windowed frames under triangular filters on Slaney's mel scale."""
    if signals.shape[1] < FRAME:
        signals = np.pad(signals, ((0, 0), (0, FRAME - signals.shape[1])))
    frames = np.lib.stride_tricks.sliding_window_view(signals, FRAME, axis=1)[:, ::HOP]
    magnitudes = np.abs(np.fft.rfft(frames * np.hanning(FRAME), axis=-1)) / (FRAME / 4)
    bands = magnitudes @ _filters(rate).T
    return np.asarray(20 * np.log10(np.maximum(bands, _FLOOR)), dtype=np.float64)


@functools.lru_cache(maxsize=8)
def _filters(rate: float) -> Floats:
    """[bands, frequencies]: each triangle sums to 1, so that a band is a weighted mean of magnitudes."""
    edges = _hertz(np.linspace(0.0, _mel(rate / 2), BANDS + 2))
    frequencies = np.fft.rfftfreq(FRAME, 1 / rate)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    triangles = np.clip(np.minimum(rising, falling), 0.0, None)
    nearest = np.abs(frequencies[None] - middle).argmin(axis=1)  # low bands may fall between two frequencies
    empty = triangles.sum(axis=1) == 0
    triangles[np.flatnonzero(empty), nearest[empty]] = 1.0
    return np.asarray(triangles / triangles.sum(axis=1, keepdims=True), dtype=np.float64)


def _mel(hertz: float) -> float:
    return hertz * 3 / 200 if hertz < 1000 else 15.0 + 27 * float(np.log(hertz / 1000)) / float(np.log(6.4))


def _hertz(mel: Floats) -> Floats:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def _ratios_db(ours: Floats, theirs: Floats) -> Floats:
    signal, error = np.square(theirs).sum(axis=1), np.square(ours - theirs).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(error == 0, MOST_DB, 10 * np.log10(signal / error))
    return np.clip(found, -MOST_DB, MOST_DB)
