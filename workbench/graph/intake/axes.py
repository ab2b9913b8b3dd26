"""The declared names and sizes of axes in the file, and the batch first on every input and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorShapeProto, helper, numpy_helper

from workbench.graph.intake.ports import PortPlan, is_batch_name, single
from workbench.graph.nodes import Names, copied, opset_of, rename_tensors, replace_nodes
from workbench.values.interface import BATCH

Array = npt.NDArray[Any]


def unnamed(dim: TensorShapeProto.Dimension) -> bool:
    """A free axis that is written as a size below 1, or under a name that says nothing."""
    if dim.HasField("dim_value"):
        return bool(dim.dim_value < 1)
    return bool(dim.dim_param) and not any(c.isalnum() for c in dim.dim_param)


def named_axes(proto: ModelProto, plans: Sequence[PortPlan]) -> ModelProto:
    """A copy whose inputs have the axes of the plans; the very same object where they have them already."""
    model = copied(proto)
    changed = False
    symbols: dict[str, int | str] = {}
    by_name = {plan.name: plan for plan in plans}
    for value in model.graph.input:
        plan = by_name.get(value.name)
        if plan is None:
            continue
        for axis, (dim, wanted) in enumerate(zip(value.type.tensor_type.shape.dim, plan.dims, strict=True)):
            size = wanted
            if unnamed(dim) and not isinstance(wanted, int):
                named = isinstance(wanted, str) and any(c.isalnum() for c in wanted)
                size = wanted if named else BATCH if axis == plan.batch else f"{plan.name}_{axis}"
            if size is None or size == (dim.dim_value if dim.HasField("dim_value") else dim.dim_param):
                continue
            if dim.dim_param and (isinstance(size, int) or not unnamed(dim)):
                symbols[dim.dim_param] = size
            dim.CopyFrom(_dim(size))
            changed = True
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if unnamed(dim):
                dim.Clear()
                changed = True
            elif dim.dim_param in symbols:
                dim.CopyFrom(_dim(symbols[dim.dim_param]))
    if not changed:
        return proto
    del model.graph.value_info[:]
    return model


def batch_first(
    proto: ModelProto,
    plans: Sequence[PortPlan],
    outputs: Mapping[str, int | None],
    ranks: Mapping[str, int],
    sized: Mapping[str, int],
) -> ModelProto:
    """A copy that takes and gives the batch on the first axis.

    Args:
        outputs: output → position of its batch axis; None where it has none and gets one of size 1. Others stay.
        ranks: of the outputs that change, as they were run, whatever the file declares.
        sized: output → the size of its first axis, where it does not say it.
    """
    model = copied(proto)
    graph, names, lone = model.graph, Names(model.graph), single(plans)
    first: list[NodeProto] = []
    last: list[NodeProto] = []
    new: dict[str, str] = {}
    axes = _axes(model, names)
    batch = next((d for p in plans if p.batch is not None for d in (p.dims[p.batch],) if isinstance(d, str)), BATCH)
    by_name = {value.name: value for value in graph.input}
    for plan in plans:
        value = by_name[plan.name]
        shape = value.type.tensor_type.shape
        if lone and plan.batch is not None:
            shape.dim[plan.batch].dim_value = 1
        elif plan.batch is not None and plan.batch > 0 and not isinstance(plan.dims[plan.batch], int):
            shape.dim[plan.batch].dim_param = str(plan.dims[plan.batch] or batch)
        if plan.batch == 0:
            continue
        new[plan.name] = source = names.fresh(f"{plan.name}_source")
        moved = _put_first(shape, plan.batch)
        if plan.batch is None:
            first.append(_node("Squeeze", plan.name, source, names, axes))
        else:
            first.append(_node("Transpose", plan.name, source, names, perm=np.argsort(moved).tolist()))
    for value in graph.output:
        axis = outputs.get(value.name, 0)
        said = value.type.tensor_type.shape
        if said.dim and len(said.dim) != (rank := ranks.get(value.name, len(said.dim))):
            said.CopyFrom(TensorShapeProto(dim=[TensorShapeProto.Dimension()] * rank))
            if axis is not None and all(plan.dims[:1] == (1,) for plan in plans):
                said.dim[axis].dim_value = 1
        if axis == 0:
            if value.name in sized:
                value.type.tensor_type.shape.dim[0].dim_value = sized[value.name]
            continue
        new[value.name] = source = names.fresh(f"{value.name}_source")
        known = value.type.tensor_type.HasField("shape") and len(said.dim) == ranks[value.name]
        if known:
            _put_first(said, axis)
        else:
            value.type.tensor_type.ClearField("shape")
        if axis is None:
            last.append(_node("Unsqueeze", source, value.name, names, axes))
            continue
        if known and value.name in sized:
            said.dim[0].dim_value = sized[value.name]
        if known and not said.dim[0].HasField("dim_value") and not is_batch_name(said.dim[0].dim_param):
            said.dim[0].dim_param = batch
        moved = [axis, *(i for i in range(ranks[value.name]) if i != axis)]
        last.append(_node("Transpose", source, value.name, names, perm=moved))
    nodes = list(graph.node)
    rename_tensors(nodes, new)
    replace_nodes(graph, (*first, *nodes, *last))
    del graph.value_info[:]
    return model


def _dim(size: int | str) -> TensorShapeProto.Dimension:
    dimension = TensorShapeProto.Dimension
    return dimension(dim_value=size) if isinstance(size, int) else dimension(dim_param=size)


def _put_first(shape: TensorShapeProto, axis: int | None) -> list[int]:
    """Move an axis to the front, or put one of size 1 there; the order of the axes before."""
    dims = [TensorShapeProto.Dimension(dim_value=1), *shape.dim] if axis is None else list(shape.dim)
    order = [axis or 0, *(i for i in range(len(dims)) if i != (axis or 0))]
    shape.CopyFrom(TensorShapeProto(dim=[dims[i] for i in order]))
    return order


def _axes(model: ModelProto, names: Names) -> str | None:
    """The initializer [0] that Squeeze and Unsqueeze read from opset 13 on; None before, where it is an attribute."""
    if opset_of(model) < 13:
        return None
    name = names.fresh("first_axis")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), name))
    return name


def _node(operator: str, source: str, to: str, names: Names, axes: str | None = "", **attributes: Any) -> NodeProto:
    """
    Args:
        axes: the second input; None where it is an attribute, the first axis.
    """
    if axes is None:
        attributes["axes"] = [0]
    inputs = [source, axes] if axes else [source]
    return helper.make_node(operator, inputs, [to], name=names.fresh(f"{to}_{operator.lower()}"), **attributes)


def to_prepared(axis: int | None, array: Array) -> Array:
    """A source's feed or output, whose samples are counted on this axis, as the prepared model has it."""
    return array[None] if axis is None else np.ascontiguousarray(np.moveaxis(array, axis, 0))
