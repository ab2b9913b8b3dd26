"""One file to be carried through, and what the independent computation must know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.strange.models import Specification, write_model

Array = npt.NDArray[Any]


ANSWERS = {"y": "values", "found": "values", "probability": "probabilities", "ids_out": "ids", "state_out": "state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An ONNX file with samples.

    Attributes:
        samples: by input, of the type that the file takes; first axis samples.
        constants: inputs that never change.
        as_given: (input, batch [n, ...]) → what the file that was given takes.
        rows: of a call; a file of a fixed batch takes no others.
        answers: output → meaning, where `init` asks.
        untouched: swept with the service, limits and everything else as `init` wrote them.
        refused: it must be refused, with a remedy; None where it must not be, or where either is right.
    """

    name: str
    model: Path
    samples: Mapping[str, Array]
    constants: Mapping[str, Any] = field(default_factory=dict)
    as_given: Callable[[str, Array], Array] = lambda _name, array: array
    rows: int = 1
    answers: Mapping[str, str] = field(default_factory=dict)
    untouched: bool = False
    refused: bool | None = None


def drawn_case(s: Specification, folder: Path) -> Case:
    """The file of one specification, written into `folder`."""
    model, drawn, constants = write_model(s, folder)
    inputs = onnx.load(model, load_external_data=False).graph.input
    types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in inputs}
    samples = {name: array.astype(types[name]) for name, array in drawn.items()}

    def as_given(name: str, array: Array) -> Array:
        if s.batch == "absent":
            return array[0]
        return np.moveaxis(array, 0, 1) if name in ("state", "sequence") else array

    return Case(
        name=s.name,
        model=model,
        samples=samples,
        constants=constants,
        as_given=as_given,
        rows=4 if s.batch == "four" else 1,
        answers={
            "y": "values",
            "found": "values",
            "probability": "probabilities",
            "ids_out": "ids",
            "state_out": "state",
        },
        untouched=s.number % 5 == 0,
        refused=True if s.extra == "foreign_operator" else None,
    )
