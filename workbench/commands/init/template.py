"""A loader to be filled in, for data that are no CSV, JSONL or NPZ: pictures, recordings, a database."""

from __future__ import annotations

from pathlib import Path

from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec


def write_template(model: Model, to: Path) -> None:
    """Raises ConfigError where the file exists already or cannot be written."""
    if to.suffix != ".py":
        raise ConfigError(f"{to} is no Python file.", key="--loader-template", hint="Write loader.py.")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("x", encoding="utf-8") as stream:
            stream.write(template_text(model))
    except FileExistsError as error:
        raise ConfigError("exists already and is not overwritten.", file=to) from error
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=to, key="--loader-template") from error


def template_text(model: Model) -> str:
    """One sample is input → array without the axis that counts samples."""
    arrays = "\n".join(f'            "{s.name}": {_array(s)},  # {_words(s)}' for s in model.inputs if s.shape)
    return f'''\
"""Samples for {model.path.name}. The manifest names it: `loader: loader.py:load`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDERS = {{"calibration": "data/train", "validation": "data/valid"}}
"""Split → where its samples lie. Without a holdout, half of the validation is set aside as one."""


def load(split: str) -> Iterator[tuple[dict[str, np.ndarray], object]] | None:
    """(inputs of one sample, its label) in an order that never changes; None for a split that there is not.

    The label is a class id, a list of tag ids, whatever an output is held against (`against: labels`) or the
    manifest's `metric:` wants, or None without labels.
    """
    if split not in FOLDERS:
        return None
    return samples(Path(__file__).parent / FOLDERS[split])


def samples(folder: Path) -> Iterator[tuple[dict[str, np.ndarray], object]]:
    for file in sorted(folder.iterdir()):
        # Read and prepare the file here exactly as the service will: size, order of axes, scaling.
        sample = {{
{arrays}
        }}
        yield sample, None
'''


def _array(spec: TensorSpec) -> str:
    sizes = [str(size) if isinstance(size, int) else "1" for size in spec.shape[1:]]
    return f"np.zeros(({', '.join(sizes)}{',' if len(sizes) == 1 else ''}), np.{spec.dtype})"


def _words(spec: TensorSpec) -> str:
    return f"without the first of [{', '.join('?' if s is None else str(s) for s in spec.shape)}]"
