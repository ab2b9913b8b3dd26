"""Gears of `acl.mdl`: dynamic batch, resolution and dims at run time (pyacl.md §7, §2.5 "Gears")."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.cann_emulator.acl import codes, handles, mdl_load, memory, models, reason
from workbench.cann_emulator.acl.call import call
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.mdl_describe import described
from workbench.cann_emulator.acl.top_data import Dataset
from workbench.cann_emulator.om import Gear, OfflineModel, input_shapes

ALL_INPUTS = 2**64 - 1
"""Index -1 as an unsigned size: the only index that the gear questions take."""
_MOST_GEARS = 4096
_MOST_DIMS = 128


@call("IkkK", "r")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> None:
    _set_gear(model_id, dataset, index, (batch,), "dynamic_batch_size")


@call("IkkKK", "r")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, height: int, width: int) -> None:
    _set_gear(model_id, dataset, index, (height, width), "dynamic_image_size")


@call("IkkO", "r")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, dims: dict[str, Any]) -> None:
    """`dims` holds all axes of all inputs, fixed ones included, the gear input excluded."""
    if not isinstance(dims, dict):
        raise TypeError("argument 4 is not dict")
    count, sizes = dims.get("dimCount"), dims.get("dims")
    if not isinstance(count, int) or not isinstance(sizes, list):
        raise TypeError("The dims of parameter 4 is not a list.")
    if not all(isinstance(size, int) for size in sizes) or count > len(sizes):
        raise TypeError("the dims of fourth parameter is not list of int")
    if handles.look(dataset, Dataset) is None or not 0 < count <= _MOST_DIMS:
        raise Failed(codes.INVALID_PARAM)
    model = mdl_load.found(model_id).model
    if model.gear_kind != "dynamic_dims":
        raise Failed(codes.GE_DYNAMIC_BATCH_SIZE_INVALID)
    axes = [size for tensor in model.inputs for size in tensor.shape]
    given = sizes[:count]
    if len(given) != len(axes) or any(axis not in (-1, size) for axis, size in zip(axes, given, strict=True)):
        text = f"dims {given} do not fit the axes {axes} of the model's inputs"
        raise reason.refused(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, "E19999", message=text)
    chosen = tuple(size for axis, size in zip(axes, given, strict=True) if axis == -1)
    _set_gear(model_id, dataset, index, chosen, "dynamic_dims")


@call("k", "dr", device=False)
def get_dynamic_batch(desc: int) -> dict[str, Any]:
    """{"batchCount": n, "batch": [...]}; none for a model without batch gears."""
    model = described(desc)
    batches = [models.gear_key(model, gear)[0] for gear in _gears(model, "dynamic_batch_size")]
    return {"batchCount": len(batches), "batch": batches}


@call("kk", "dr", device=False)
def get_dynamic_hw(desc: int, index: int) -> dict[str, Any]:
    """{"hwCount": n, "hw": [[height, width], ...]}; the index is ignored."""
    model = described(desc)
    sizes = [list(models.gear_key(model, gear)) for gear in _gears(model, "dynamic_image_size")]
    return {"hwCount": len(sizes), "hw": sizes}


@call("kk", "kr", device=False)
def get_input_dynamic_gear_count(desc: int, index: int) -> int:
    return len(_all_gears(desc, index)[1])


@call("kkk", "lr", device=False)
def get_input_dynamic_dims(desc: int, index: int, count: int) -> list[dict[str, Any]]:
    """One dims dict per gear, with all axes of all inputs in one list."""
    model, gears = _all_gears(desc, index)
    if not len(gears) <= count <= _MOST_GEARS:
        raise Failed(codes.INVALID_PARAM)
    found = []
    for gear in gears:
        axes = [size for shape in input_shapes(model, gear) for size in shape]
        found.append({"name": "", "dimCount": len(axes), "dims": axes})
    return found


def _gears(model: OfflineModel, kind: str) -> tuple[Gear, ...]:
    return model.gears if model.gear_kind == kind else ()


def _all_gears(desc: int, index: int) -> tuple[OfflineModel, tuple[Gear, ...]]:
    model = described(desc)
    if index != ALL_INPUTS:
        raise Failed(codes.INVALID_PARAM)
    return model, _gears(model, "dynamic_dims")


def _set_gear(model_id: int, dataset: int, index: int, chosen: tuple[int, ...], kind: str) -> None:
    """Choose a gear for a dataset and a model; the value reaches the dataset even when the model refuses it."""
    found = handles.need(dataset, Dataset, "dataset")
    if any(value == 0 for value in chosen):
        why = "it must be greater than zero"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=0, param=kind, reason=why)
    if index >= len(found.buffers) or not found.buffers[index].address:
        why = "the dataset has no memory there"
        raise reason.refused(codes.INVALID_PARAM, "EH0001", value=index, param="index", reason=why)
    entry = mdl_load.found(model_id)
    if kind != "dynamic_dims":
        found.gear = chosen
    buffer, model = found.buffers[index], entry.model
    if buffer.size < 4 * len(chosen):
        raise Failed(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID)
    keys = [models.gear_key(model, gear) for gear in _gears(model, kind)]
    if chosen not in keys:
        text = f"{list(chosen)} is none of the gears of model {entry.name}"
        raise reason.refused(codes.GE_DYNAMIC_BATCH_SIZE_INVALID, "E19999", message=text)
    _tell_device(buffer.address, buffer.size, chosen)
    found.gear, entry.gear = chosen, keys.index(chosen)


def _tell_device(address: int, size: int, chosen: tuple[int, ...]) -> None:
    """Write the values into the gear input: int32, or int64 when the buffer has 8 bytes for each."""
    values = np.array(chosen, np.int64 if size >= 8 * len(chosen) else np.int32)
    arena = memory.arena_of(address)
    private = memory.reach(arena, address, values.nbytes, True) if arena is not None else None
    if private is None:
        raise Failed(codes.RT_DRV_INTERNAL_ERROR)
    memory.move(private, values.ctypes.data, values.nbytes)
