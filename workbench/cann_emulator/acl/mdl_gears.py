"""Gears of `acl.mdl`: dynamic batch, resolution and dims at run time (pyacl.md §7, §2.5 "Gears")."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.cann_emulator.acl import codes, handles, mdl_load, memory, models, reason
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.datasets import Dataset
from workbench.cann_emulator.acl.models import Description, LoadedModel
from workbench.cann_emulator.om import OfflineModel, input_shapes

ALL_INPUTS = 2**64 - 1
"""Index -1 as an unsigned size: the only index that the gear questions take."""
_MOST_GEARS = 4096
_MOST_DIMS = 128


@call("IkkK", "r")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> int:
    return _set_gear(model_id, dataset, index, (batch,), "dynamic_batch_size")


@call("IkkKK", "r")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, height: int, width: int) -> int:
    return _set_gear(model_id, dataset, index, (height, width), "dynamic_image_size")


@call("IkkO", "r")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, dims: dict[str, Any]) -> int:
    """`dims` holds all axes of all inputs, fixed ones included, the gear input excluded."""
    if not isinstance(dims, dict):
        raise TypeError("argument 4 is not dict")
    count, sizes = dims.get("dimCount"), dims.get("dims")
    if not isinstance(count, int) or not isinstance(sizes, list):
        raise TypeError("The dims of parameter 4 is not a list.")
    if not all(isinstance(size, int) for size in sizes) or count > len(sizes):
        raise TypeError("the dims of fourth parameter is not list of int")
    entry, code = mdl_load.found(model_id)
    found = handles.look(dataset, Dataset)
    if found is None or not 0 < count <= _MOST_DIMS:
        return codes.INVALID_PARAM
    if entry is None:
        return code
    if entry.model.gear_kind != "dynamic_dims":
        return codes.GE_DYNAMIC_BATCH_SIZE_INVALID
    axes = [size for tensor in entry.model.inputs for size in tensor.shape]
    given = sizes[:count]
    if len(given) != len(axes) or any(axis not in (-1, size) for axis, size in zip(axes, given, strict=True)):
        reason.report("E19999", reason=f"dims {given} do not fit the axes {axes} of the model's inputs")
        return codes.GE_DYNAMIC_INPUT_LENGTH_INVALID
    chosen = tuple(size for axis, size in zip(axes, given, strict=True) if axis == -1)
    return _set_gear(model_id, dataset, index, chosen, "dynamic_dims")


@call("k", "dr", device=False)
def get_dynamic_batch(desc: int) -> tuple[dict[str, Any], int]:
    """{"batchCount": n, "batch": [...]}; none for a model without batch gears."""
    model = _model(desc)
    if model is None:
        return {}, codes.INVALID_PARAM
    gears = model.gears if model.gear_kind == "dynamic_batch_size" else ()
    batches = [models.gear_key(model, gear)[0] for gear in gears]
    return {"batchCount": len(batches), "batch": batches}, 0


@call("kk", "dr", device=False)
def get_dynamic_hw(desc: int, index: int) -> tuple[dict[str, Any], int]:
    """{"hwCount": n, "hw": [[height, width], ...]}; the index is ignored."""
    model = _model(desc)
    if model is None:
        return {}, codes.INVALID_PARAM
    gears = model.gears if model.gear_kind == "dynamic_image_size" else ()
    sizes = [list(models.gear_key(model, gear)) for gear in gears]
    return {"hwCount": len(sizes), "hw": sizes}, 0


@call("kk", "kr", device=False)
def get_input_dynamic_gear_count(desc: int, index: int) -> tuple[int, int]:
    model = _model(desc)
    if model is None or index != ALL_INPUTS:
        return 0, codes.INVALID_PARAM
    return (len(model.gears) if model.gear_kind == "dynamic_dims" else 0), 0


@call("kkk", "lr", device=False)
def get_input_dynamic_dims(desc: int, index: int, count: int) -> tuple[list[dict[str, Any]] | None, int]:
    """One dims dict per gear, with all axes of all inputs in one list."""
    if count > _MOST_GEARS:
        return None, codes.INVALID_PARAM
    model = _model(desc)
    if model is None or index != ALL_INPUTS:
        return [], codes.INVALID_PARAM
    gears = model.gears if model.gear_kind == "dynamic_dims" else ()
    if count < len(gears):
        return [], codes.INVALID_PARAM
    found = []
    for gear in gears:
        axes = [size for shape in input_shapes(model, gear) for size in shape]
        found.append({"name": "", "dimCount": len(axes), "dims": axes})
    return found, 0


def _set_gear(model_id: int, dataset: int, index: int, chosen: tuple[int, ...], kind: str) -> int:
    """Choose a gear for a dataset and a model; the value reaches the dataset even when the model refuses it."""
    found = handles.look(dataset, Dataset)
    if found is None:
        reason.report("EH0002", param="dataset")
        return codes.INVALID_PARAM
    if any(value == 0 for value in chosen):
        reason.report("EH0001", value=0, param=kind, reason="it must be greater than zero")
        return codes.INVALID_PARAM
    if index >= len(found.buffers) or not found.buffers[index].address:
        reason.report("EH0001", value=index, param="index", reason="the dataset has no memory there")
        return codes.INVALID_PARAM
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return code
    if kind != "dynamic_dims":
        found.gear = chosen
    buffer = found.buffers[index]
    if buffer.size < 4 * len(chosen):
        return codes.GE_DYNAMIC_INPUT_LENGTH_INVALID
    gear = _gear_index(entry, chosen, kind)
    if gear is None:
        reason.report("E19999", reason=f"{list(chosen)} is none of the gears of model {entry.name}")
        return codes.GE_DYNAMIC_BATCH_SIZE_INVALID
    if not _tell_device(buffer.address, buffer.size, chosen):
        return codes.RT_DRV_INTERNAL_ERROR
    found.gear, entry.gear = chosen, gear
    return 0


def _gear_index(entry: LoadedModel, chosen: tuple[int, ...], kind: str) -> int | None:
    model = entry.model
    if model.gear_kind != kind:
        return None
    return next((i for i, gear in enumerate(model.gears) if models.gear_key(model, gear) == chosen), None)


def _tell_device(address: int, size: int, chosen: tuple[int, ...]) -> bool:
    """Write the values into the gear input: int32, or int64 when the buffer has 8 bytes for each."""
    values = np.array(chosen, np.int64 if size >= 8 * len(chosen) else np.int32)
    arena = memory.arena_of(address)
    private = memory.reach(arena, address, values.nbytes, True) if arena is not None else None
    if private is None:
        return False
    memory.move(private, values.ctypes.data, values.nbytes)
    return True


def _model(desc: int) -> OfflineModel | None:
    description = handles.look(desc, Description)
    return description.model if description is not None else None
