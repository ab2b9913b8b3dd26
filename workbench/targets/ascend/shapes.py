"""Which axis of a model's inputs and outputs is the batch, and which the length of the text."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.targets.ascend.interface import Axis, Interface, Port
from workbench.values.errors import ConfigError
from workbench.values.model import Model, Sizes, TensorSpec, counts_samples

Size = int | Axis


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
    sizes: list[Size] = [size if isinstance(size, int) else "sequence" for size in spec.shape]
    if sizes and counts_samples(spec.shape, inputs):
        sizes[0] = "batch"
    return Port(name=spec.name, dtype=spec.dtype, shape=tuple(sizes))
