"""Descriptions of `acl.mdl`: what a loaded model takes and gives (pyacl.md §1.5)."""

from __future__ import annotations

from typing import Any

from workbench.cann_emulator.acl import codes, dtypes, handles, mdl_load, models
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.codes import Failed
from workbench.cann_emulator.acl.models import Description
from workbench.cann_emulator.om import OfflineModel, Tensor

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
    models.describe(mdl_load.found(model_id), handles.need(desc, Description, "modelDesc"))


@call("k", "k", device=False)
def get_num_inputs(desc: int) -> int:
    return len(handles.need(desc, Description).inputs)


@call("k", "k", device=False)
def get_num_outputs(desc: int) -> int:
    return len(handles.need(desc, Description).outputs)


@call("kk", "k", device=False)
def get_input_size_by_index(desc: int, index: int) -> int:
    _tensor(desc, index, "input")
    return models.input_bytes(described(desc), index)


@call("kk", "k", device=False)
def get_output_size_by_index(desc: int, index: int) -> int:
    _tensor(desc, index, "output")
    return models.output_bytes(described(desc), index)


@call("kk", "dr", device=False)
def get_input_dims(desc: int, index: int) -> Dims:
    return _dims(desc, index, "input", _tensor(desc, index, "input").shape)


@call("kk", "dr", device=False)
def get_input_dims_v2(desc: int, index: int) -> Dims:
    """As `get_input_dims`: the two differ only with static AIPP, which is for images."""
    return _dims(desc, index, "input", _tensor(desc, index, "input").shape)


@call("kk", "dr", device=False)
def get_output_dims(desc: int, index: int) -> Dims:
    """Of the largest gear."""
    _tensor(desc, index, "output")
    return _dims(desc, index, "output", models.output_shape(described(desc), index, None))


@call("kk", "dr", device=False)
def get_cur_output_dims(desc: int, index: int) -> Dims:
    """Of the gear set last on the model; of the largest before any was."""
    _tensor(desc, index, "output")
    model, load = described(desc), handles.need(desc, Description).of
    if model.gear_kind == "range":
        raise Failed(codes.API_NOT_SUPPORT)
    gear = load.gear if load is not None else None
    return _dims(desc, index, "output", models.output_shape(model, index, gear))


@call("kk", "dr", device=False)
def get_input_dims_range(desc: int, index: int) -> dict[str, Any]:
    """Lowest and highest size of each axis; -1 is no bound."""
    _tensor(desc, index, "input")
    model = described(desc)
    ranges = [list(pair) for pair in models.range_of(model, index)] if model.gear_kind == "range" else []
    return {"rangeCount": len(ranges), "range": ranges}


@call("kk", "s", device=False, missing="")
def get_input_name_by_index(desc: int, index: int) -> str:
    return _tensor(desc, index, "input").name


@call("kk", "s", device=False, missing="")
def get_output_name_by_index(desc: int, index: int) -> str:
    return _tensor(desc, index, "output").name


@call("ks", "kr", device=False)
def get_input_index_by_name(desc: int, name: str) -> int:
    return _index(handles.need(desc, Description).inputs, name)


@call("ks", "kr", device=False)
def get_output_index_by_name(desc: int, name: str) -> int:
    return _index(handles.need(desc, Description).outputs, name)


@call("kk", "i", device=False, missing=_UNDEFINED)
def get_input_data_type(desc: int, index: int) -> int:
    return dtypes.CODES[_tensor(desc, index, "input").dtype]


@call("kk", "i", device=False, missing=_UNDEFINED)
def get_output_data_type(desc: int, index: int) -> int:
    return dtypes.CODES[_tensor(desc, index, "output").dtype]


@call("kk", "i", device=False, missing=_UNDEFINED)
def get_input_format(desc: int, index: int) -> int:
    return _tensor(desc, index, "input").format


@call("kk", "i", device=False, missing=_UNDEFINED)
def get_output_format(desc: int, index: int) -> int:
    return _tensor(desc, index, "output").format


@call("ks", "s", device=False)
def get_tensor_real_name(desc: int, name: str) -> str | None:
    """The whole name behind `acl_modelId_<id>_input_<index>`; other known names as they are, None for unknown ones."""
    description = handles.need(desc, Description)
    for kind, tensors in (("input", description.inputs), ("output", description.outputs)):
        for index, tensor in enumerate(tensors):
            if name in (tensor.name, _short(description, kind, index)):
                return tensor.name
    return None


@call("Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int]:
    """0 is an input without AIPP, 1 one with static AIPP; the second value would be the index of its parameters."""
    model = mdl_load.found(model_id).model
    if index >= len(model.inputs):
        raise Failed(codes.INVALID_PARAM)
    static = model.options.get("insert_op_conf") and model.inputs[index].dtype == "uint8"
    return _STATIC_AIPP if static else _WITHOUT_AIPP, _NO_INDEX


def described(desc: int) -> OfflineModel:
    """The model that a description was filled from; Failed where it was from none."""
    model = handles.need(desc, Description).model
    if model is None:
        raise Failed(codes.INVALID_PARAM)
    return model


def _tensor(desc: int, index: int, which: str) -> Tensor:
    description = handles.need(desc, Description)
    tensors = description.inputs if which == "input" else description.outputs
    if index >= len(tensors):
        raise Failed(codes.INVALID_PARAM)
    return tensors[index]


def _index(tensors: tuple[Tensor, ...], name: str) -> int:
    for index, tensor in enumerate(tensors):
        if tensor.name == name:
            return index
    raise Failed(codes.INVALID_PARAM)


def _dims(desc: int, index: int, kind: str, shape: tuple[int, ...]) -> Dims:
    name = _tensor(desc, index, kind).name
    if len(name.encode()) > _LONGEST_NAME:
        name = _short(handles.need(desc, Description), kind, index)
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


def _short(description: Description, kind: str, index: int) -> str:
    model_id = description.of.id if description.of is not None else 0
    return f"acl_modelId_{model_id}_{kind}_{index}"
