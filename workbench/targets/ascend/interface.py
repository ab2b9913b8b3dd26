"""What a set of compiled files takes and gives, whichever file runs: names, types, and which axis is what.

Written beside the files when they are compiled. ATC fixes every shape, so that only this file still knows that an
axis was the batch, or the length of the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.canonical import canonical_json, decode
from workbench.files import temporary_beside

INTERFACE = "interface.json"

Axis = Literal["batch", "sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output.

    Attributes:
        dtype: NumPy's name, such as int64 or float32: what callers feed and get, whatever the compiled file holds.
        shape: size, or what the axis is.
    """

    name: str
    dtype: str
    shape: tuple[int | Axis, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """Ports of the model, in its own order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def input_shape(self, batch: int, length: int | None) -> str:
        """The value of --input_shape for one compiled file, such as `ids:1,128;mask:1,128`.

        Args:
            length: None only where no input has a sequence axis.
        """
        sizes: dict[int | Axis, int | None] = {"batch": batch, "sequence": length}
        entries = []
        for port in self.inputs:
            dims = [sizes[size] if isinstance(size, str) else size for size in port.shape]
            if None in dims:
                raise ValueError(f"{port.name} has a sequence axis and no length was given")
            entries.append(f"{port.name}:{','.join(map(str, dims))}")
        return ";".join(entries)


def write_interface(interface: Interface, directory: Path) -> Path:
    file = directory / INTERFACE
    with temporary_beside(file, durable=False) as draft:
        draft.write_text(canonical_json(interface), encoding="utf-8")
    return file


def read_interface(directory: Path) -> Interface:
    """The interface written beside the files.

    Raises:
        OSError, ValueError: missing or damaged.
    """
    return decode(Interface, json.loads((directory / INTERFACE).read_text(encoding="utf-8")))
