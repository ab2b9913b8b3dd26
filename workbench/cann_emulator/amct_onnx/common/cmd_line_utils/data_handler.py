"""Calibration data in raw files: one file holds one batch of one input (amct.md §1.4)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_TYPES = (
    *("float64", "float32", "float16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)


def load_data(
    inputs: Mapping[str, Sequence[int]],
    data_paths: Sequence[str | os.PathLike[str]],
    data_types: Sequence[str],
    num: int | None = None,
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Batches as feeds: the i-th file, in the order of names, of each input's folder.

    Args:
        inputs: input name → shape of one whole batch.
        num: how many batches; None for as many as the first folder has files.

    Raises:
        RuntimeError: a folder has fewer files.
        TypeError: an unknown data type.
        ValueError: a file does not hold one batch.
    """
    files = [sorted(Path(folder).iterdir()) for folder in data_paths]
    count = len(files[0]) if num is None else num
    for found in files:
        if len(found) < count:
            raise RuntimeError(
                "The number of given data batches is not enough to run calibration with the given batch_num. "
                f"Total batches found: {len(found)}, but trying to load: {count}."
            )
    for index in range(count):
        yield {
            name: load_bin_data(files[place][index], data_types[place], shape)
            for place, (name, shape) in enumerate(inputs.items())
        }


def load_bin_data(
    data_file_name: str | os.PathLike[str], data_types: str, data_shapes: Sequence[int]
) -> npt.NDArray[Any]:
    """One raw file as an array."""
    if data_types not in _TYPES:
        raise TypeError(f"Unsupported data type[{data_types}]!")
    return np.fromfile(data_file_name, np.dtype(data_types)).reshape(tuple(data_shapes))
