"""How speech sounds beside the clean signal, by pystoi and pesq, for each sample.

Targets are the clean signals; without targets the float model's own output is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Outputs = Mapping[str, np.ndarray[Any, Any]]
Signal = np.ndarray[Any, Any]


def stoi(outputs: Outputs, targets: Sequence[Any] | None, reference: Outputs | None, options: dict[str, Any]) -> Signal:
    import pystoi

    pairs = _pairs(outputs, targets, reference, options)
    return np.array([pystoi.stoi(clean, signal, options["rate"]) for clean, signal in pairs])


def pesq(outputs: Outputs, targets: Sequence[Any] | None, reference: Outputs | None, options: dict[str, Any]) -> Signal:
    import pesq as library

    rate = options["rate"]
    if rate not in (8000, 16000):
        raise ValueError(f"PESQ is defined at 8000 and 16000 Hz, not {rate}")
    mode = "wb" if rate == 16000 else "nb"
    pairs = _pairs(outputs, targets, reference, options)
    return np.array([library.pesq(rate, clean, signal, mode) for clean, signal in pairs])


def _pairs(
    outputs: Outputs, targets: Sequence[Any] | None, reference: Outputs | None, options: dict[str, Any]
) -> Iterator[tuple[Signal, Signal]]:
    """(clean, said) of each sample, in one dimension, cut to the shorter one."""
    name = options.get("output") or next(iter(outputs))
    given = targets if targets is not None and all(target is not None for target in targets) else None
    if given is None and reference is None:
        raise ValueError("there are neither targets nor the float model's outputs")
    right: Sequence[Any] = given if given is not None else list((reference or {})[name])
    for clean, signal in zip(right, outputs[name], strict=True):
        ours, theirs = np.asarray(clean, np.float64).reshape(-1), np.asarray(signal, np.float64).reshape(-1)
        length = min(len(ours), len(theirs))
        yield ours[:length], theirs[:length]
