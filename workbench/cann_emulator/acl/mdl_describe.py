"""Descriptions of `acl.mdl`: what a loaded model takes and gives, and its gears (pyacl.md §1.5, §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.cann_emulator.acl import errors, handles, mdl_run, memory, models
from workbench.cann_emulator.acl.call import call, getters, site
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.models import Description
from workbench.cann_emulator.acl.top import Dataset
from workbench.cann_emulator.om import Gear, OfflineModel, Tensor, input_shapes

_LONGEST_NAME = 127
_UNDEFINED = -1
_WITHOUT_AIPP, _STATIC_AIPP, _NO_INDEX = 0, 1, 0xFFFFFFFF
Dims = dict[str, Any]
"""{"name": text, "dimCount": int, "dims": [int, …]}; empty when the call failed."""


@call("", "k", device=False)
def create_desc() -> int:
    return handles.give(Description(site=site()))


@call("k", "r", device=False)
def destroy_desc(desc: int) -> None:
    handles.need(desc, Description, "modelDesc")
    handles.drop(desc)


@call("kI", "r")
def get_desc(desc: int, model_id: int) -> None:
    models.describe(mdl_run.found(model_id), handles.need(desc, Description, "modelDesc"))


def _bytes(desc: int, which: str, index: int) -> int:
    _tensor(desc, index, which)
    sizes = models.input_bytes if which == "input" else models.output_bytes
    return sizes(described(desc), index)


def _most_dims(desc: int, which: str, index: int) -> Dims:
    """Of an output those of the largest gear."""
    tensor = _tensor(desc, index, which)
    return _dims(desc, index, which, tensor.shape if which == "input" else models.output_shape(described(desc), index))


def _index(desc: int, which: str, name: str) -> int:
    names = [tensor.name for tensor in _tensors(desc, which)]
    if name not in names:
        raise Failed(errors.INVALID_PARAM)
    return names.index(name)


_PAIRS: tuple[tuple[str, str, str, Callable[[int, str, Any], Any], object], ...] = (
    ("get_{}_size_by_index", "kk", "k", _bytes, None),
    ("get_{}_dims", "kk", "dr", _most_dims, None),
    ("get_{}_name_by_index", "kk", "s", lambda desc, which, index: _tensor(desc, index, which).name, ""),
    ("get_{}_index_by_name", "ks", "kr", _index, None),
    (
        *("get_{}_data_type", "kk", "i"),
        lambda desc, which, index: models.DTYPE_CODES[_tensor(desc, index, which).dtype],
        _UNDEFINED,
    ),
    ("get_{}_format", "kk", "i", lambda desc, which, index: _tensor(desc, index, which).format, _UNDEFINED),
)
"""Functions for inputs and for outputs, which ask (description, 'input' or 'output', index or name): name, forms, what
answers, and what a function without a code gives where it fails."""


def _asking(which: str, ask: Callable[[int, str, Any], Any]) -> Callable[[int, Any], Any]:
    return lambda desc, argument: ask(desc, which, argument)


for _name, _takes, _gives, _ask, _missing in _PAIRS:
    for _which in ("input", "output"):
        getters(globals(), _takes, _gives, _missing, False, **{_name.format(_which): _asking(_which, _ask)})
getters(
    globals(),
    get_num_inputs=lambda desc: len(_tensors(desc, "input")),
    get_num_outputs=lambda desc: len(_tensors(desc, "output")),
)
# the two differ only with static AIPP, which is for images
getters(globals(), "kk", "dr", get_input_dims_v2=lambda desc, index: _most_dims(desc, "input", index))


@call("kk", "dr", device=False)
def get_cur_output_dims(desc: int, index: int) -> Dims:
    """Of the gear set last on the model; of the largest before any was."""
    _tensor(desc, index, "output")
    model, load = described(desc), handles.need(desc, Description).of
    gear = load.gear if load is not None else None
    return _dims(desc, index, "output", models.output_shape(model, index, gear))


@call("Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int]:
    """0 is an input without AIPP, 1 one with static AIPP; the second value would be the index of its parameters."""
    model = mdl_run.found(model_id).model
    if index >= len(model.inputs):
        raise Failed(errors.INVALID_PARAM)
    static = model.options.get("insert_op_conf") and model.inputs[index].dtype == "uint8"
    return _STATIC_AIPP if static else _WITHOUT_AIPP, _NO_INDEX


def described(desc: int) -> OfflineModel:
    """The model that a description was filled from; Failed where it was from none."""
    model = handles.need(desc, Description).model
    if model is None:
        raise Failed(errors.INVALID_PARAM)
    return model


def _tensors(desc: int, which: str) -> tuple[Tensor, ...]:
    description = handles.need(desc, Description)
    return description.inputs if which == "input" else description.outputs


def _tensor(desc: int, index: int, which: str) -> Tensor:
    tensors = _tensors(desc, which)
    if index >= len(tensors):
        raise Failed(errors.INVALID_PARAM)
    return tensors[index]


def _dims(desc: int, index: int, kind: str, shape: tuple[int, ...]) -> Dims:
    name = _tensor(desc, index, kind).name
    if len(name.encode()) > _LONGEST_NAME:
        load = handles.need(desc, Description).of
        name = f"acl_modelId_{load.id if load is not None else 0}_{kind}_{index}"
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


# --- gears: dynamic batch, resolution and dims at run time (pyacl.md §7, §2.5 "Gears") ---

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
        raise Failed(errors.INVALID_PARAM)
    model = mdl_run.found(model_id).model
    if model.gear_kind != "dynamic_dims":
        raise Failed(errors.GE_DYNAMIC_BATCH_SIZE_INVALID)
    axes = [size for tensor in model.inputs for size in tensor.shape]
    given = sizes[:count]
    if len(given) != len(axes) or any(axis not in (-1, size) for axis, size in zip(axes, given, strict=True)):
        text = f"dims {given} do not fit the axes {axes} of the model's inputs"
        raise errors.refused(errors.GE_DYNAMIC_INPUT_LENGTH_INVALID, "E19999", message=text)
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
        raise Failed(errors.INVALID_PARAM)
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
        raise Failed(errors.INVALID_PARAM)
    return model, _gears(model, "dynamic_dims")


def _set_gear(model_id: int, dataset: int, index: int, chosen: tuple[int, ...], kind: str) -> None:
    """Choose a gear for a dataset and a model; the value reaches the dataset even when the model refuses it."""
    found = handles.need(dataset, Dataset, "dataset")
    if any(value == 0 for value in chosen):
        raise errors.invalid(kind, 0, "it must be greater than zero")
    if index >= len(found.buffers) or not found.buffers[index].address:
        raise errors.invalid("index", index, "the dataset has no memory there")
    entry = mdl_run.found(model_id)
    if kind != "dynamic_dims":
        found.gear = chosen
    buffer, model = found.buffers[index], entry.model
    if buffer.size < 4 * len(chosen):
        raise Failed(errors.GE_DYNAMIC_INPUT_LENGTH_INVALID)
    keys = [models.gear_key(model, gear) for gear in _gears(model, kind)]
    if chosen not in keys:
        text = f"{list(chosen)} is none of the gears of model {entry.name}"
        raise errors.refused(errors.GE_DYNAMIC_BATCH_SIZE_INVALID, "E19999", message=text)
    _tell_device(buffer.address, buffer.size, chosen)
    found.gear, entry.gear = chosen, keys.index(chosen)


def _tell_device(address: int, size: int, chosen: tuple[int, ...]) -> None:
    """Write the values into the gear input: int32, or int64 when the buffer has 8 bytes for each."""
    values = np.array(chosen, np.int64 if size >= 8 * len(chosen) else np.int32)
    arena = memory.arena_of(address)
    private = memory.reach(arena, address, values.nbytes, True) if arena is not None else None
    if private is None:
        raise Failed(errors.RT_DRV_INTERNAL_ERROR)
    memory.move(private, values.ctypes.data, values.nbytes)
