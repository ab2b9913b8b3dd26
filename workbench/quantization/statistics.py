"""Statistics: what one pass over the calibration data leaves for every algorithm. Types, stability, storage."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.graph.layers import Layer
from workbench.quantization.histogram import BINS_PER_SIDE, Histogram
from workbench.values.documents.canonical import DecodeError, canonical_json, decode, digest, encode
from workbench.values.errors import CalibrationError
from workbench.values.system.files import temporary_beside

Range = tuple[float, float]
NOTHING: Range = (math.inf, -math.inf)
"""The range of no values."""

_FORMAT = 3
_ERROR = "_error"  # stored arrays of that name stay out of the digest

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelStatistics:
    """Per channel of one activation tensor (last axis for MatMul and Gemm, axis 1 for convolutions and pooling).

    Attributes:
        minima, maxima: float32[channels].
        sums, squares: float64[channels], Σx and Σx². Terms are added in float32 over at most 64 positions of one
            sample (over all of them, pairwise, where channels are axis 1), then in float64: within 4e-6 of Σ|x|
            and of Σx².
        rows: values per channel; sums / rows is the mean.
        sums_error, squares_error: float64[channels], what rounding to float64 has taken from the sums.
    """

    minima: npt.NDArray[np.float32]
    maxima: npt.NDArray[np.float32]
    sums: Doubles
    squares: Doubles
    rows: int
    sums_error: Doubles = field(default_factory=lambda: np.zeros(()))
    squares_error: Doubles = field(default_factory=lambda: np.zeros(()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorStatistics:
    """One activation tensor.

    Attributes:
        channels: None for tensors that only meet other activations, and for outputs of convolutions.
        samples: how many samples had values of it.
        minimum_sum, maximum_sum: the samples' own extremes summed up, as (sum, rounding error).
        halves: ranges of two disjoint halves of the samples. A sample's content decides on its half, so that order
            and splitting do not; `NOTHING` for a half without samples.
    """

    histogram: Histogram
    channels: ChannelStatistics | None = None
    samples: int = 0
    minimum_sum: tuple[float, float] = (0.0, 0.0)
    maximum_sum: tuple[float, float] = (0.0, 0.0)
    halves: tuple[Range, Range] = (NOTHING, NOTHING)

    @property
    def sample_minimum_mean(self) -> float:
        """Mean over the samples of each one's smallest value; 0.0 for a tensor that was never seen."""
        return self.minimum_sum[0] / self.samples if self.samples else 0.0

    @property
    def sample_maximum_mean(self) -> float:
        """Mean over the samples of each one's largest value; 0.0 for a tensor that was never seen.

        ONNX Runtime's moving average is the mean over batches instead (its `CalibMovingAverage`), and so depends on
        how the data was batched; with one sample per batch the two are equal.
        """
        return self.maximum_sum[0] / self.samples if self.samples else 0.0

    @property
    def stability(self) -> float:
        """How far the ranges of the two halves lie apart; see `Statistics.stability`."""
        if NOTHING in self.halves:
            return 1.0
        (low, high), (other_low, other_high) = ((min(low, 0.0), max(high, 0.0)) for low, high in self.halves)
        widest = max(high - low, other_high - other_low)
        return max(abs(low - other_low), abs(high - other_high)) / widest if widest > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Everything a calibration algorithm needs to know about a model and its data.

    Attributes:
        samples: how many samples were seen.
        layers: the observed graph's quantizable layers, in graph order.
        tensors: of every layer's inputs, and of Conv outputs, by tensor name.
        variant: names what was changed in the graph before it was observed; empty for the model as it is.
    """

    model_sha256: str
    samples: int
    layers: tuple[Layer, ...]
    tensors: Mapping[str, TensorStatistics]
    variant: str = ""

    @property
    def digest(self) -> str:
        """64 hex digits over the whole content; equal statistics have equal digests on every machine."""
        header, arrays = _packed(self)
        hashed = {
            name: [str(a.dtype), list(a.shape), hashlib.sha256(a.tobytes()).hexdigest()]
            for name, a in arrays.items()
            if not name.endswith(_ERROR)
        }
        return digest({"header": header, "arrays": hashed})

    def stability(self) -> dict[str, float]:
        """Per tensor, how much the ranges of two disjoint halves of the samples differ; largest first, in [0, 1].

        The larger difference of the two range ends (both ranges moved to contain zero), as a share of the wider
        range. 0: both halves show the same range. 0.3: one half misses 30 % of the range that the other one sees.
        Near 0, more samples of the same kind would hardly change a min-max scale. A large figure says that single
        samples decide the range: take more samples, or an algorithm that clips. 1 where a half has no samples.
        """
        figures = {name: tensor.stability for name, tensor in self.tensors.items()}
        return dict(sorted(figures.items(), key=lambda item: (-item[1], item[0])))

    def unstable(self, threshold: float = 0.25) -> tuple[str, ...]:
        """Tensors whose `stability` is above `threshold`, worst first."""
        return tuple(name for name, figure in self.stability().items() if figure > threshold)


def save_statistics(statistics: Statistics, path: Path) -> None:
    """Write one `.npz` file, atomically. Equal statistics give equal content."""
    header, arrays = _packed(statistics)
    contents: dict[str, Any] = {"header": np.frombuffer(canonical_json(header).encode(), np.uint8), **arrays}
    with temporary_beside(path) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, **contents)


def load_statistics(path: Path) -> Statistics:
    """Read what `save_statistics` wrote.

    Raises:
        CalibrationError: the file is damaged, or of another version.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return _unpacked(json.loads(arrays.pop("header").tobytes()), arrays)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise CalibrationError(
            f"{path} does not hold statistics of version {_FORMAT} ({error}). Delete it; they are observed again."
        ) from error


# --- stored form ---------------------------------------------------------------------------------------------------


def _packed(statistics: Statistics) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """A JSON header and a few arrays, every mapping in name order."""
    tensors = sorted(statistics.tensors.items())
    channels = [(name, t.channels) for name, t in tensors if t.channels is not None]
    header = {
        "version": _FORMAT,
        "model_sha256": statistics.model_sha256,
        "variant": statistics.variant,
        "samples": statistics.samples,
        "layers": encode(statistics.layers),
        "tensors": [[name, t.histogram.exponent, t.histogram.zeros, t.samples] for name, t in tensors],
        "channels": [[name, c.minima.size, c.rows] for name, c in channels],
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        "counts": np.stack([t.histogram.counts for _, t in tensors]),
        "ranges": np.array([(t.histogram.minimum, t.histogram.maximum) for _, t in tensors], np.float64),
        "halves": np.array([t.halves for _, t in tensors], np.float64),
        "sample_sums": np.array([(t.minimum_sum[0], t.maximum_sum[0]) for _, t in tensors], np.float64),
        f"sample_sums{_ERROR}": np.array([(t.minimum_sum[1], t.maximum_sum[1]) for _, t in tensors], np.float64),
        "channel_ranges": _side_by_side([(c.minima, c.maxima) for _, c in channels], np.float32),
        "channel_sums": _side_by_side([(c.sums, c.squares) for _, c in channels], np.float64),
        f"channel_sums{_ERROR}": _side_by_side(
            [np.broadcast_arrays(c.sums_error, c.squares_error, c.sums)[:2] for _, c in channels], np.float64
        ),
    }
    return header, arrays


def _side_by_side(pairs: list[tuple[npt.NDArray[Any], ...]], dtype: type[np.floating[Any]]) -> npt.NDArray[Any]:
    """[2, all channels of all pairs]."""
    return np.concatenate([np.zeros((2, 0), dtype), *(np.stack(pair) for pair in pairs)], axis=1)


def _unpacked(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Statistics:
    if header["version"] != _FORMAT:
        raise ValueError(f"version {header['version']!r}")
    count = len(header["tensors"])
    expected = {
        "counts": (count, 2 * BINS_PER_SIDE),
        "ranges": (count, 2),
        "halves": (count, 2, 2),
        "sample_sums": (count, 2),
        f"sample_sums{_ERROR}": (count, 2),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise DecodeError(f"{name} of shape {arrays[name].shape} do not fit {count} tensors")
    sizes = [size for _, size, _ in header["channels"]]
    parts = [_split(arrays[name], sizes) for name in ("channel_ranges", "channel_sums", f"channel_sums{_ERROR}")]
    channels = {
        name: ChannelStatistics(
            minima=extremes[0],
            maxima=extremes[1],
            sums=sums[0],
            squares=sums[1],
            rows=rows,
            sums_error=errors[0],
            squares_error=errors[1],
        )
        for (name, _, rows), extremes, sums, errors in zip(header["channels"], *parts, strict=True)
    }
    return Statistics(
        model_sha256=header["model_sha256"],
        samples=header["samples"],
        layers=decode(tuple[Layer, ...], header["layers"], "layers"),
        tensors={
            item[0]: _unpacked_tensor(at, item, arrays, channels.get(item[0]))
            for at, item in enumerate(header["tensors"])
        },
        variant=header["variant"],
    )


def _unpacked_tensor(
    at: int, item: list[Any], arrays: Mapping[str, npt.NDArray[Any]], channels: ChannelStatistics | None
) -> TensorStatistics:
    _, exponent, zeros, samples = item
    low, high = arrays["ranges"][at].tolist()
    sums, errors = arrays["sample_sums"][at].tolist(), arrays[f"sample_sums{_ERROR}"][at].tolist()
    even, odd = arrays["halves"][at].tolist()
    return TensorStatistics(
        histogram=Histogram(
            exponent=exponent, counts=arrays["counts"][at].copy(), zeros=zeros, minimum=low, maximum=high
        ),
        channels=channels,
        samples=samples,
        minimum_sum=(sums[0], errors[0]),
        maximum_sum=(sums[1], errors[1]),
        halves=((even[0], even[1]), (odd[0], odd[1])),
    )


def _split(array: npt.NDArray[Any], sizes: list[int]) -> list[npt.NDArray[Any]]:
    """[2, all channels] in parts of these sizes."""
    if array.shape != (2, sum(sizes)):
        raise DecodeError(f"{array.shape[-1]} channels stored, {sum(sizes)} expected")
    return [part.copy() for part in np.split(array, np.cumsum(sizes[:-1]), axis=1)] if sizes else []
