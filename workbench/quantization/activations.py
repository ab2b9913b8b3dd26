"""The float activations of a model, run by run: what passes over the calibration data besides `observe` are made of."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.observe import Feeds, parts, rows_that_fit
from workbench.quantization.sessions import open_session
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_Floats = npt.NDArray[np.float32]

MASSIVE = 4.0
"""A row is left out of means and moments when its largest |x| is this many times that of the run's median row."""

_WIDE = 64  # channels; in a narrow layer a few large rows are nothing special


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One forward pass.

    Attributes:
        first_sample, samples: which samples it was, counted from 0 over the whole data.
        values: tensor → finite float32 values.
    """

    first_sample: int
    samples: int
    values: Mapping[str, _Floats]


def activations(
    model: Model,
    proto: ModelProto,
    tensors: Sequence[str],
    batches: Iterable[Feeds],
    *,
    threads: int = 2,
    whole: bool = False,
) -> Iterator[Run]:
    """The values of tensors, one run after another in the order of the batches.

    A few runs are computed ahead on `threads` cores; no more than `threads` + 1 of them are held.

    Args:
        proto: the graph to run, with the model's inputs and outputs.
        whole: a batch is one run, as it is fed; otherwise a few samples are.

    Raises:
        CalibrationError: no samples, feeds the model refuses, or a tensor that is not float32 or not finite (names it
            and the sample).
    """
    fed = {spec.name for spec in model.inputs}
    wanted = [tensor for tensor in dict.fromkeys(tensors) if tensor not in fed]
    session = open_session(model, wanted, proto)

    def run(feeds: Feeds) -> tuple[int, dict[str, _Floats]]:
        try:
            values = session.run(wanted, dict(feeds)) if wanted else []
        except RUNTIME_ERRORS as error:
            raise CalibrationError(f"the float model failed on a calibration batch: {error}") from error
        found = {**{name: feeds[name] for name in tensors if name in fed}, **dict(zip(wanted, values, strict=True))}
        return max((len(array) for array in feeds.values() if array.ndim), default=1), found

    done = 0
    pending: collections.deque[Future[tuple[int, dict[str, _Floats]]]] = collections.deque()

    def finished() -> Run:
        nonlocal done
        samples, values = pending.popleft().result()
        for tensor, array in values.items():
            _check(tensor, array, done, samples)
        result = Run(first_sample=done, samples=samples, values=values)
        done += samples
        return result

    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            most_rows = None
            for feeds in batches:
                if not done and not pending and not whole:
                    most_rows = rows_that_fit(model, session, wanted, feeds)
                for part in [feeds] if whole else parts(model, feeds, most_rows=most_rows):
                    pending.append(pool.submit(run, part))
                    if len(pending) > threads:
                        yield finished()
            while pending:
                yield finished()
        finally:
            for future in pending:
                future.cancel()
    if done == 0:
        raise CalibrationError("there are no calibration samples. Check the dataset's `calibration` file.")


def _check(tensor: str, values: npt.NDArray[np.generic], first_sample: int, rows: int) -> None:
    if values.dtype != np.float32:
        raise CalibrationError(f"tensor {tensor!r} is {values.dtype}; only float32 activations can be calibrated.")
    if values.size and not np.isfinite([values.min(), values.max()]).all():
        position = np.argwhere(~np.isfinite(values))[0]
        by_row = values.ndim > 0 and values.shape[0] % rows == 0  # [batch, ...], or batch and positions in one
        sample = first_sample + (int(position[0]) * rows // values.shape[0] if by_row else 0)
        raise CalibrationError(
            f"activation {tensor!r} holds {values[tuple(position)]} at sample {sample}. Look at that sample, or at "
            "the float model with it."
        )


def ordinary_rows(values: _Floats) -> _Floats:
    """The rows (tokens) of [..., C] as [rows, C], without those of massive activations (see `MASSIVE`).

    Encoders park large values on a token or two per sentence (Sun et al. 2024, "Massive Activations in Large Language
    Models", arXiv:2402.17762), and the normalization behind takes them out again. A mean over all tokens is theirs:
    in MiniLM's first block one channel has a mean error of 10.8 and a median one of 0.01, and correcting the mean
    cost 0.73 of 0.94 accuracy.

    Layers of fewer than 64 channels keep every row.
    """
    rows = values.reshape(-1, values.shape[-1])
    if rows.shape[1] < _WIDE:
        return rows
    largest = np.abs(rows).max(axis=1)
    ordinary = largest <= MASSIVE * np.median(largest)
    return rows if ordinary.all() else rows[ordinary]
