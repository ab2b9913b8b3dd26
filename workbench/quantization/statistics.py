"""Statistics: what one pass over the calibration data leaves for every algorithm. Types, stability, storage."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.graph.layers import Layer
from workbench.quantization.histogram import Histogram
from workbench.values.documents.canonical import canonical_json, decode, digest, encode
from workbench.values.errors import CalibrationError
from workbench.values.system.files import temporary_beside

Range = tuple[float, float]
NOTHING: Range = (math.inf, -math.inf)
"""The range of no values."""

_FORMAT = 4
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
    sums_error: Doubles
    squares_error: Doubles


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


_CHANNELS = ("minima", "maxima", "sums", "squares", "sums_error", "squares_error")


def _packed(statistics: Statistics) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """A JSON header with the tensors in name order, and their arrays, by number and name."""
    header: dict[str, Any] = {
        "version": _FORMAT,
        "model_sha256": statistics.model_sha256,
        "variant": statistics.variant,
        "samples": statistics.samples,
        "layers": encode(statistics.layers),
        "tensors": [],
    }
    arrays: dict[str, npt.NDArray[Any]] = {}
    for at, (name, tensor) in enumerate(sorted(statistics.tensors.items())):
        seen, channels = tensor.histogram, tensor.channels
        rows = None if channels is None else channels.rows
        header["tensors"].append([name, seen.exponent, seen.zeros, tensor.samples, rows])
        sums, errors = zip(tensor.minimum_sum, tensor.maximum_sum, strict=True)
        (low, high), (other_low, other_high) = tensor.halves
        arrays[f"{at}.counts"] = seen.counts
        arrays[f"{at}.numbers"] = np.array([seen.minimum, seen.maximum, *sums, low, high, other_low, other_high])
        arrays[f"{at}.numbers{_ERROR}"] = np.array(errors)
        if channels is not None:
            arrays |= {f"{at}.{each}": getattr(channels, each) for each in _CHANNELS}
    return header, arrays


def _unpacked(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Statistics:
    if header["version"] != _FORMAT:
        raise ValueError(f"version {header['version']!r}")
    tensors = {}
    for at, (name, exponent, zeros, samples, rows) in enumerate(header["tensors"]):
        minimum, maximum, low_sum, high_sum, *halves = arrays[f"{at}.numbers"].tolist()
        low_error, high_error = arrays[f"{at}.numbers{_ERROR}"].tolist()
        found = {each: arrays[f"{at}.{each}"] for each in _CHANNELS} if rows is not None else {}
        counts = arrays[f"{at}.counts"]
        tensors[name] = TensorStatistics(
            histogram=Histogram(exponent=exponent, counts=counts, zeros=zeros, minimum=minimum, maximum=maximum),
            channels=None if rows is None else ChannelStatistics(rows=rows, **found),
            samples=samples,
            minimum_sum=(low_sum, low_error),
            maximum_sum=(high_sum, high_error),
            halves=((halves[0], halves[1]), (halves[2], halves[3])),
        )
    return Statistics(
        model_sha256=header["model_sha256"],
        samples=header["samples"],
        layers=decode(tuple[Layer, ...], header["layers"], "layers"),
        tensors=tensors,
        variant=header["variant"],
    )
