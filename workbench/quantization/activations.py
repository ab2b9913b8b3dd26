"""The float activations of a model, run by run: what every pass over the calibration data is made of.

Batches with a symbolic batch dimension are run a few samples at a time, several runs at once (each on one core), so
memory depends on neither the batch nor the number of samples.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto

from workbench.graph.apart import is_large
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.sessions import open_session
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; the same type as `workbench.targets.base.Feeds`."""
_Floats = npt.NDArray[np.float32]

ROWS_PER_RUN, VALUES_PER_RUN = 4, 256
"""A forward pass takes 4 samples, or more where that many have fewer than 256 values (such as short texts: more of
them at once share the cost of a run). Bounds the activations in memory; more rows are no faster on a CPU."""

RUN_BYTES = 64 << 20
"""Of a large model's tensors in one run. Two runs are made ahead and held besides."""

MASSIVE = 4.0
"""A row is left out of means and moments when its largest |x| is this many times that of the run's median row."""

_WIDE = 64  # channels; in a narrow layer a few large rows are nothing special


class NotFiniteError(ValueError):
    """A tensor holds NaN or infinity; `tensor` is its name."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"tensor {tensor!r} holds NaN or infinity")
        self.tensor = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One forward pass.

    Attributes:
        first_sample, samples: which samples it was, counted from 0 over the whole data.
        values: tensor → float32 values; finite, where nothing was done with them in the run itself.
    """

    first_sample: int
    samples: int
    feeds: Feeds
    values: Mapping[str, _Floats]


def activations(
    model: Model,
    proto: ModelProto | None,
    tensors: Sequence[str],
    batches: Iterable[Feeds],
    *,
    threads: int = 2,
    whole: bool = False,
    work: Callable[[Run], None] | None = None,
) -> Iterator[Run]:
    """The values of tensors, one run after another in the order of the batches.

    A few runs are computed ahead on `threads` cores; no more than `threads` + 1 of them are held.

    Args:
        proto: the graph to run, with the model's inputs and outputs; None for the model's own.
        whole: a batch is one run, as it is fed; otherwise a few samples are.
        work: what is done with a run on its own core; its values are gone then. It raises NotFiniteError.

    Raises:
        CalibrationError: no samples, feeds the model refuses, or a tensor that is not float32 or not finite (names it
            and the sample).
    """
    fed = {spec.name for spec in model.inputs}
    wanted = [tensor for tensor in dict.fromkeys(tensors) if tensor not in fed]
    session = open_session(model, wanted, proto)

    def run(feeds: Feeds, first_sample: int) -> Run:
        try:
            outputs = session.run(wanted or None, dict(feeds))[: len(wanted)]
        except RUNTIME_ERRORS as error:
            raise CalibrationError(f"the float model failed at calibration sample {first_sample}: {error}") from error
        seen = {**feeds, **dict(zip(wanted, outputs, strict=True))}
        values = {tensor: seen[tensor] for tensor in tensors}
        done = Run(first_sample=first_sample, samples=_rows(feeds), feeds=feeds, values=values)
        for name, array in values.items():
            if array.dtype != np.float32:
                raise CalibrationError(f"tensor {name!r} is {array.dtype}; only float32 activations can be calibrated.")
        try:
            if work is None:
                _check_finite(values)
                return done
            work(done)
        except NotFiniteError as error:
            raise _not_finite(error.tensor, done) from error
        return Run(first_sample=first_sample, samples=done.samples, feeds=feeds, values={})

    samples, most_rows = 0, None
    pending: collections.deque[Future[Run]] = collections.deque()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                if samples == 0 and not whole:
                    most_rows = _rows_that_fit(model, session, wanted, feeds)
                for part in [feeds] if whole else parts(model, feeds, most_rows=most_rows):
                    pending.append(pool.submit(run, part, samples))
                    samples += _rows(part)
                    if len(pending) > threads:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if samples == 0:
        raise CalibrationError("there are no calibration samples. Check the dataset's `calibration` file.")


def parts(model: Model, feeds: Feeds, *, most_rows: int | None = None) -> Iterator[Feeds]:
    """A batch in pieces of a few samples (`ROWS_PER_RUN`), where the model takes any batch size.

    Args:
        most_rows: samples whose activations fit into memory.
    """
    rows = _rows(feeds)
    sizes = {array.shape[0] if array.ndim else None for array in feeds.values()}
    fixed = any(not spec.shape or isinstance(spec.shape[0], int) for spec in model.inputs)
    if fixed or sizes != {rows}:
        yield feeds
        return
    if rows == 0:
        return
    values = max(array.size // rows for array in feeds.values())
    step = max(ROWS_PER_RUN, VALUES_PER_RUN // max(values, 1))
    if most_rows is not None:
        step = min(step, most_rows)
    for start in range(0, rows, step):
        yield {name: array[start : start + step] for name, array in feeds.items()}


def _rows(feeds: Feeds) -> int:
    first = next(iter(feeds.values()), None)
    return 1 if first is None or first.ndim == 0 else int(first.shape[0])


def _rows_that_fit(
    model: Model, session: onnxruntime.InferenceSession, wanted: Sequence[str], feeds: Feeds
) -> int | None:
    """How many samples like the batch's first one have tensors of `RUN_BYTES` in all: one run of it tells.

    None for models that are small themselves, whose activations are not worth a run.
    """
    if not is_large(model.size_bytes) or not wanted:
        return None
    one = next(parts(model, feeds, most_rows=1), feeds)
    try:
        held: int = sum(array.nbytes for array in session.run(list(wanted), dict(one)))
    except RUNTIME_ERRORS:
        return None  # the run that counts says so, with the sample
    return max(1, RUN_BYTES // max(held // max(_rows(one), 1), 1))


def _check_finite(values: Mapping[str, _Floats]) -> None:
    for tensor, array in values.items():
        if array.size and not np.isfinite([array.min(), array.max()]).all():
            raise NotFiniteError(tensor)


def _not_finite(tensor: str, run: Run) -> CalibrationError:
    values, rows = run.values[tensor], run.samples
    position = np.argwhere(~np.isfinite(values))[0]
    leading = values.shape[0] if values.ndim else 1
    sample = f"sample {run.first_sample}"
    if leading % rows == 0:  # [batch, ...], or batch and positions in one dimension
        sample = f"sample {run.first_sample + int(position[0]) * rows // leading}"
    elif rows > 1:
        sample = f"one of samples {run.first_sample} to {run.first_sample + rows - 1}"
    return CalibrationError(
        f"activation {tensor!r} holds {values[tuple(position)]} at {sample}. Look at that sample, or at the float "
        "model with it."
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
