"""What a set of compiled files takes and gives, whichever file runs: names, types, and which axis is what.

Written beside the files when they are compiled. ATC fixes every shape, so that only this file still knows that an
axis was the batch, or the length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import ConfigError
from workbench.values.model import Model, Sizes, TensorSpec, counts_samples
from workbench.values.system.files import temporary_beside

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
    found = decode(Interface, loads((directory / INTERFACE).read_bytes()))
    if not found.inputs or not found.outputs:
        raise ValueError(f"{INTERFACE} has {len(found.inputs)} inputs and {len(found.outputs)} outputs")
    return found


def interface_of(model: Model) -> Interface:
    """The model's ports with every free axis named.

    The first axis is the batch, also where the model fixes it: then one size of it is compiled. Every other free axis
    of the inputs must be one and the same length; axes without a name count as that length too. An output's first axis
    is the batch where it counts samples, and every other free one the length: exporters give old axes new names.

    Raises:
        ConfigError: two lengths that differ, which one list of bins cannot describe.
    """
    lengths = {d for port in model.inputs for d in port.shape[1:] if isinstance(d, str)}
    batches = {port.shape[0] for port in model.inputs if port.shape and isinstance(port.shape[0], str)}
    if len(lengths - batches) > 1 or lengths & batches:
        names = ", ".join(sorted(lengths | batches))
        raise ConfigError(
            f"the inputs have more free axes than a batch and one length ({names}).",
            file=model.path,
            hint="Give the others sizes in the dataset manifest, inputs: {NAME: {axes: [batch, 3, 48, width]}}, or "
            "export the model with them.",
        )
    taken = [port.shape for port in model.inputs]
    return Interface(
        inputs=tuple(_port(port, taken) for port in model.inputs),
        outputs=tuple(_port(port, taken) for port in model.outputs),
    )


def has_axis(interface: Interface, axis: Axis) -> bool:
    return any(axis in port.shape for port in interface.inputs)


def _port(spec: TensorSpec, inputs: Sequence[Sizes]) -> Port:
    sizes: list[int | Axis] = [size if isinstance(size, int) else "sequence" for size in spec.shape]
    if sizes and counts_samples(spec.shape, inputs):
        sizes[0] = "batch"
    return Port(name=spec.name, dtype=spec.dtype, shape=tuple(sizes))
