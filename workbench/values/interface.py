"""What a dataset manifest says of a model's inputs, axes, state and outputs, where the file alone does not tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from workbench.values.documents.canonical import added_later

Meaning = Literal[
    "logits", "probabilities", "ids", "boxes", "scores", "mask", "signal", "embedding", "values", "state", "ignored"
]
"""What an output is, which decides how two models' outputs are compared."""

BATCH = "batch"
"""The axis that counts samples, among an input's or an output's named axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUse:
    """How one input is fed.

    Attributes:
        constant: numbers, nested as the input's shape is; the input is built into the prepared model and never fed.
        axes: name or size of every axis; `BATCH` stands where samples are counted, and may be absent: then one call is
            one sample. Empty where the model's own names say it.
        initial: of an input that carries a state: what it holds at a sequence's first step, nested as one sample of it
            is, or one number for all; None for zeros.
    """

    name: str
    constant: Any = None
    axes: tuple[str | int, ...] = ()
    initial: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisUse:
    """A free axis besides the batch, by the name that the inputs give it.

    Attributes:
        bins: sizes that a batch is padded to, ascending; empty where samples are fed with the size they have.
        pad: value of the padding.
        start: of bundles that were made while states could grow along an axis: its size before the first step.
    """

    name: str
    bins: tuple[int, ...] = ()
    pad: float = 0.0
    start: int | None = added_later(None)  # it gives a dataclass field


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputUse:
    """What one output means.

    Attributes:
        options: the meaning's own numbers and words, such as a threshold; sorted by name.
        limits: metric of this output → the worst value allowed; sorted by name.
        reason: why, where it was inferred and not written.
    """

    name: str
    meaning: Meaning
    options: tuple[tuple[str, str | int | float | bool], ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """All that is declared; the default declares nothing, and is what text classifiers need.

    Attributes:
        state: (output, input) whose value is carried from one step of a sequence to the next.
    """

    inputs: tuple[InputUse, ...] = ()
    axes: tuple[AxisUse, ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    outputs: tuple[OutputUse, ...] = ()


NOTHING_DECLARED = Interface()
