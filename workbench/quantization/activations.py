"""The float activations of a model, run by run: what passes over the calibration data besides `observe` are made of."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from workbench.errors import CalibrationError
from workbench.model import Model
from workbench.quantization.observe import RUNTIME_ERRORS, Feeds, open_session, parts

_Floats = npt.NDArray[np.float32]

MASSIVE = 4.0
"""A row is left out of means and moments when its largest |x| is this many times that of the run's median row."""

_WIDE = 64  # channels; in a narrow layer a few large rows are nothing special


def activations(
    model: Model, proto: ModelProto, tensors: Sequence[str], batches: Iterable[Feeds], *, threads: int = 2
) -> Iterator[Mapping[str, _Floats]]:
    """Tensor → float32 values, for one run after another in the order of the batches.

    A few runs are computed ahead on `threads` cores; no more than `threads` + 1 of them are held.

    Args:
        proto: the graph to run, with the model's inputs and outputs.

    Raises:
        CalibrationError: no samples, feeds the model refuses, or a tensor that is not float32 or not finite.
    """
    fed = {spec.name for spec in model.inputs}
    wanted = [tensor for tensor in dict.fromkeys(tensors) if tensor not in fed]
    session = open_session(model, wanted, proto)

    def run(feeds: Feeds) -> Mapping[str, _Floats]:
        try:
            values = session.run(wanted, dict(feeds)) if wanted else []
        except RUNTIME_ERRORS as error:
            raise CalibrationError(f"the float model failed on a calibration batch: {error}") from error
        found = {**{name: feeds[name] for name in tensors if name in fed}, **dict(zip(wanted, values, strict=True))}
        for name, array in found.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise CalibrationError(f"tensor {name!r} is {array.dtype} or holds NaN or infinity. Look at its data.")
        return found

    seen = False
    pending: collections.deque[Future[Mapping[str, _Floats]]] = collections.deque()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                for part in parts(model, feeds):
                    pending.append(pool.submit(run, part))
                    seen = True
                    if len(pending) > threads:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if not seen:
        raise CalibrationError("there are no calibration samples. Check the dataset's `calibration` file.")


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
