"""Gears: one compiled file that holds several shapes, chosen before each execution (pyacl.md §7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.targets.ascend.acl.calls import do, probe, take
from workbench.targets.ascend.acl.codes import INVALID_PARAM
from workbench.targets.ascend.fitting import Shape
from workbench.targets.ascend.interface import Interface
from workbench.values.errors import MeasureError

GEAR_INPUT = "ascend_mbatch_shape_data"
"""The input that ATC appends to a model with gears; the runtime writes it, nobody else."""

Dims = Mapping[str, Sequence[int]]
"""Input name → sizes of its axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gear:
    """One shape of a model with gears, as the call that sets it wants it.

    Attributes:
        batch: the value of set_dynamic_batch_size; None for a model whose gears are dims.
        dims: the value of set_input_dynamic_dims: all axes of all inputs, one behind the other; empty with `batch`.
        inputs: the shapes of the inputs.
    """

    batch: int | None
    dims: tuple[int, ...]
    inputs: Dims


def gear_input(desc: int) -> int | None:
    """Index of the input that carries the gear; None for a model without gears."""
    index: int | None = probe("mdl.get_input_index_by_name", desc, GEAR_INPUT, absent=INVALID_PARAM)
    return index


def read_gears(desc: int, interface: Interface, dims: Dims, file: str) -> tuple[Gear, ...]:
    """The gears a model was compiled with.

    Args:
        dims: of the inputs without the gear's, dynamic axes -1.

    Raises:
        MeasureError: gears of picture sizes, or such as the interface does not describe.
    """
    batches = take("mdl.get_dynamic_batch", desc)
    if batches["batchCount"]:
        return tuple(
            Gear(batch=batch, dims=(), inputs={name: _filled(sizes, batch) for name, sizes in dims.items()})
            for batch in batches["batch"][: batches["batchCount"]]
        )
    count = take("mdl.get_input_dynamic_gear_count", desc, -1)
    if not count:
        raise MeasureError(
            f"{file} has the input {GEAR_INPUT!r} and neither gears of batches nor of dims; picture sizes "
            "(--dynamic_image_size) are not served here. Compile it with --dynamic_dims."
        )
    gears = take("mdl.get_input_dynamic_dims", desc, -1, count)
    return tuple(_gear_of_dims(tuple(gear["dims"][: gear["dimCount"]]), interface, dims, file) for gear in gears)


def set_gear(model_id: int, dataset: int, index: int, gear: Gear) -> None:
    """Choose the gear of the next executions with this dataset."""
    if gear.batch is not None:
        do("mdl.set_dynamic_batch_size", model_id, dataset, index, gear.batch)
    else:
        dims = {"name": "", "dimCount": len(gear.dims), "dims": list(gear.dims)}
        do("mdl.set_input_dynamic_dims", model_id, dataset, index, dims)


def shape_of(interface: Interface, dims: Dims, file: str) -> Shape:
    """The batch and length of one set of input shapes.

    Raises:
        MeasureError: they are not what the interface describes.
    """
    found: dict[str, int] = {}
    for port in interface.inputs:
        sizes = dims[port.name]
        for axis, size in zip(port.shape, sizes, strict=False):
            expected = axis if isinstance(axis, int) else found.setdefault(axis, size)
            if size != expected or size < 0 or len(sizes) != len(port.shape):
                raise MeasureError(
                    f"{file}: input {port.name!r} was compiled as {list(sizes)}, which is not {list(port.shape)} of "
                    "the model. Compile again."
                )
    return Shape(batch=found.get("batch"), length=found.get("sequence"))


def _gear_of_dims(values: tuple[int, ...], interface: Interface, dims: Dims, file: str) -> Gear:
    """A gear's values name all axes of all inputs in the order of --input_shape, which is the interface's."""
    if len(values) != sum(len(port.shape) for port in interface.inputs):
        raise MeasureError(
            f"{file}: a gear has {len(values)} dims, {list(values)}, and the inputs have others. Compile again."
        )
    inputs, start = {}, 0
    for port in interface.inputs:
        inputs[port.name] = values[start : start + len(port.shape)]
        start += len(port.shape)
        fixed = [(size, given) for size, given in zip(dims[port.name], inputs[port.name], strict=False) if size >= 0]
        if any(size != given for size, given in fixed):
            raise MeasureError(
                f"{file}: a gear gives {port.name!r} {list(inputs[port.name])}, the model {list(dims[port.name])}. The "
                "inputs were compiled in another order; compile again."
            )
    return Gear(batch=None, dims=values, inputs=inputs)


def _filled(sizes: Sequence[int], batch: int) -> tuple[int, ...]:
    return tuple(batch if size < 0 else size for size in sizes)
