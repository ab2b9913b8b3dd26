"""What accuracy is compared with: the float model in float32.

Where the float baseline itself computes in float32, it is the reference. Where a target runs float models in fewer
bits (float16 on a device), the baseline has a loss of its own, and the reference is the prepared model in ONNX Runtime
on the host: what a candidate loses is then said against float32 in all, and against what runs today beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np

from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.inputs.experiment import Experiment
from workbench.quantization.sessions import open_session
from workbench.targets.base import Array, Feeds, Session, computes_in_float32
from workbench.targets.feeds import FileRows
from workbench.values.errors import MeasureError
from workbench.values.model import Model

FLOAT32_ON_THE_HOST = "float32 in ONNX Runtime"
"""`Accuracy.reference` of such a comparison."""


def apart_from_baseline(experiment: Experiment) -> bool:
    """Whether the reference is something else than the float baseline."""
    return not computes_in_float32(experiment.baseline)


def reference_words(experiment: Experiment) -> str:
    """`Accuracy.reference` of this experiment's figures."""
    return FLOAT32_ON_THE_HOST if apart_from_baseline(experiment) else ""


def reference_identity(model: Model) -> Mapping[str, str]:
    """What decides the reference's numbers, as part of a key. Threads do not: no sum is split between them."""
    return {"model": model.sha256, "engine": f"onnxruntime {version('onnxruntime')}", "computes": "float32"}


def open_reference(model: Model) -> Session:
    """The prepared float model on the host: any rows, any lengths, on as many threads as there are processors, which
    wait asleep so that they disturb no timing.

    Raises:
        CalibrationError: ONNX Runtime refuses the model.
    """
    return _OnTheHost(model)


class _OnTheHost:
    def __init__(self, model: Model) -> None:
        self._session = open_session(model, (), threads=len(os.sched_getaffinity(0)))
        self._names = [output.name for output in self._session.get_outputs()]
        self._rows = FileRows(model.inputs, model.outputs)
        self._closed = False

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return self._rows.run(self._call, feeds)

    def _call(self, feeds: Feeds) -> dict[str, Array]:
        if self._closed:
            raise MeasureError("the float32 reference is closed.")
        try:
            found = self._session.run(self._names, dict(feeds))
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"the float32 model fails in ONNX Runtime: {error}") from error
        return {name: np.asarray(array) for name, array in zip(self._names, found, strict=True)}

    def close(self) -> None:
        self._closed = True
