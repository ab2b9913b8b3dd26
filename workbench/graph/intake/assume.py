"""What an input most likely is that has no axis for samples, where no manifest says it: sampling rates, speeds, noise.

For looking at a model on its own; a sweep asks, because a wrong constant changes what the model computes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import InputUse, Interface
from workbench.values.model import Model, TensorSpec

_KNOWN: dict[str, tuple[tuple[int, ...], Any, str]] = {
    "sr": ((), 16000, "a sampling rate"),
    "sample_rate": ((), 16000, "a sampling rate"),
    "sampling_rate": ((), 16000, "a sampling rate"),
    "scales": ((3,), [0.667, 1.0, 0.8], "noise, length and noise of durations of a VITS voice, as published"),
    "noise_scale": ((), 0.667, "noise of a VITS voice, as published"),
    "length_scale": ((), 1.0, "tempo of a voice"),
    "noise_scale_w": ((), 0.8, "noise of durations of a VITS voice, as published"),
    "speed": ((), 1.0, "tempo of a voice"),
}
"""Name → (shape, value, what it is); a single number may come with axes of size 1."""


def assumed(source: Model, declared: Interface) -> tuple[Interface, tuple[tuple[str, str], ...]]:
    """(the interface with constants for well-known inputs that it does not speak of, (input, sentence) for each)."""
    spoken_of = {use.name for use in declared.inputs}
    batched = any(spec.shape and not isinstance(spec.shape[0], int) for spec in source.inputs)
    uses, said = list(declared.inputs), []
    for spec in source.inputs:
        known = _KNOWN.get(spec.name.lower().rpartition(".")[2])
        if known is None or spec.name in spoken_of or not _fits(spec, known[0]) or len(source.inputs) == 1:
            continue
        if not batched and spec.shape and spec.shape[0] == 1:
            continue  # all inputs are of one sample, and this one is fed with them
        uses.append(InputUse(name=spec.name, constant=known[1]))
        said.append((spec.name, f"taken for {known[2]} and built in as {known[1]}"))
    return replace(declared, inputs=tuple(uses)), tuple(said)


def _fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    if not shape:
        return all(size == 1 for size in spec.shape)
    return spec.shape == shape


def constants_of(written: Iterable[str], source: Model) -> tuple[InputUse, ...]:
    """`NAME=VALUE` of a command line, VALUE a number or nested lists of them."""
    names = [spec.name for spec in source.inputs]
    uses: dict[str, InputUse] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not NAME=VALUE.", key="--constant", hint="Write --constant sr=16000.")
        if name not in names:
            raise ConfigError(f"the model has no input {name!r}.", key="--constant", hint=nearest(name, names))
        if name in uses:
            raise ConfigError(f"{name!r} is given twice.", key="--constant")
        uses[name] = InputUse(name=name, constant=numbers_of(name, value))
    return tuple(uses.values())


def numbers_of(name: str, text: str) -> Any:
    """The value of `--constant NAME=TEXT`: a finite number or nested lists of them."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    flat: list[Any] = [value]
    while any(isinstance(item, list) for item in flat):
        flat = [inner for item in flat for inner in (item if isinstance(item, list) else [item])]
    if not flat or not all(isinstance(item, bool | int | float) and math.isfinite(item) for item in flat):
        hint = f"Write --constant {name}=16000, or --constant '{name}=[0.667, 1.0, 0.8]'."
        raise ConfigError(f"{text!r} is no number and no list of numbers.", key=f"--constant {name}", hint=hint)
    return value
