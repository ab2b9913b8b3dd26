"""Descriptions of `acl.mdl`: what a loaded model takes and gives (pyacl.md §1.5)."""

from __future__ import annotations

from typing import Any

from workbench.cann_emulator.acl import codes, dtypes, handles, mdl_load, models, reason
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.models import Description
from workbench.cann_emulator.om import Tensor

_LONGEST_NAME = 127
_UNDEFINED = -1
_WITHOUT_AIPP, _STATIC_AIPP, _NO_INDEX = 0, 1, 0xFFFFFFFF
Dims = dict[str, Any]
"""{"name": text, "dimCount": int, "dims": [int, …]}; empty when the call failed."""


@call("", "k", device=False)
def create_desc() -> int:
    description = Description(site=site())
    description.handle = handles.give(description)
    return description.handle


@call("k", "r", device=False)
def destroy_desc(desc: int) -> int:
    if _description(desc) is None:
        return codes.INVALID_PARAM
    handles.drop(desc)
    return 0


@call("kI", "r")
def get_desc(desc: int, model_id: int) -> int:
    description = _description(desc)
    if description is None:
        return codes.INVALID_PARAM
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return code
    models.describe(entry, description)
    return 0


@call("k", "k", device=False)
def get_num_inputs(desc: int) -> int:
    description = handles.look(desc, Description)
    return len(description.inputs) if description is not None else 0


@call("k", "k", device=False)
def get_num_outputs(desc: int) -> int:
    description = handles.look(desc, Description)
    return len(description.outputs) if description is not None else 0


@call("kk", "k", device=False)
def get_input_size_by_index(desc: int, index: int) -> int:
    description = handles.look(desc, Description)
    if description is None or description.model is None or index >= len(description.inputs):
        return 0
    return models.input_bytes(description.model, index)


@call("kk", "k", device=False)
def get_output_size_by_index(desc: int, index: int) -> int:
    description = handles.look(desc, Description)
    if description is None or description.model is None or index >= len(description.outputs):
        return 0
    return models.output_bytes(description.model, index)


@call("kk", "dr", device=False)
def get_input_dims(desc: int, index: int) -> tuple[Dims, int]:
    tensor = _tensor(desc, index, "inputs")
    return _failed() if tensor is None else (_dims(desc, index, "input", tensor.name, tensor.shape), 0)


@call("kk", "dr", device=False)
def get_input_dims_v2(desc: int, index: int) -> tuple[Dims, int]:
    """As `get_input_dims`: the two differ only with static AIPP, which is for images."""
    tensor = _tensor(desc, index, "inputs")
    return _failed() if tensor is None else (_dims(desc, index, "input", tensor.name, tensor.shape), 0)


@call("kk", "dr", device=False)
def get_output_dims(desc: int, index: int) -> tuple[Dims, int]:
    """Of the largest gear."""
    tensor, description = _tensor(desc, index, "outputs"), handles.look(desc, Description)
    if tensor is None or description is None or description.model is None:
        return _failed()
    return _dims(desc, index, "output", tensor.name, models.output_shape(description.model, index, None)), 0


@call("kk", "dr", device=False)
def get_cur_output_dims(desc: int, index: int) -> tuple[Dims, int]:
    """Of the gear set last on the model; of the largest before any was."""
    tensor, description = _tensor(desc, index, "outputs"), handles.look(desc, Description)
    if tensor is None or description is None or description.model is None:
        return _failed()
    if description.model.gear_kind == "range":
        return {}, codes.API_NOT_SUPPORT
    gear = description.of.gear if description.of is not None else None
    return _dims(desc, index, "output", tensor.name, models.output_shape(description.model, index, gear)), 0


@call("kk", "dr", device=False)
def get_input_dims_range(desc: int, index: int) -> tuple[dict[str, Any], int]:
    """Lowest and highest size of each axis; -1 is no bound."""
    tensor, description = _tensor(desc, index, "inputs"), handles.look(desc, Description)
    if tensor is None or description is None or description.model is None:
        return {"rangeCount": 0, "range": []}, codes.INVALID_PARAM
    if description.model.gear_kind != "range":
        return {"rangeCount": 0, "range": []}, 0
    ranges = [list(pair) for pair in models.range_of(description.model, index)]
    return {"rangeCount": len(ranges), "range": ranges}, 0


@call("kk", "s", device=False)
def get_input_name_by_index(desc: int, index: int) -> str:
    tensor = _tensor(desc, index, "inputs")
    return tensor.name if tensor is not None else ""


@call("kk", "s", device=False)
def get_output_name_by_index(desc: int, index: int) -> str:
    tensor = _tensor(desc, index, "outputs")
    return tensor.name if tensor is not None else ""


@call("ks", "kr", device=False)
def get_input_index_by_name(desc: int, name: str) -> tuple[int, int]:
    return _index(desc, name, "inputs")


@call("ks", "kr", device=False)
def get_output_index_by_name(desc: int, name: str) -> tuple[int, int]:
    return _index(desc, name, "outputs")


@call("kk", "i", device=False)
def get_input_data_type(desc: int, index: int) -> int:
    tensor = _tensor(desc, index, "inputs")
    return dtypes.CODES[tensor.dtype] if tensor is not None else _UNDEFINED


@call("kk", "i", device=False)
def get_output_data_type(desc: int, index: int) -> int:
    tensor = _tensor(desc, index, "outputs")
    return dtypes.CODES[tensor.dtype] if tensor is not None else _UNDEFINED


@call("kk", "i", device=False)
def get_input_format(desc: int, index: int) -> int:
    tensor = _tensor(desc, index, "inputs")
    return tensor.format if tensor is not None else _UNDEFINED


@call("kk", "i", device=False)
def get_output_format(desc: int, index: int) -> int:
    tensor = _tensor(desc, index, "outputs")
    return tensor.format if tensor is not None else _UNDEFINED


@call("ks", "s", device=False)
def get_tensor_real_name(desc: int, name: str) -> str | None:
    """The whole name behind `acl_modelId_<id>_input_<index>`; other known names as they are, None for unknown ones."""
    description = handles.look(desc, Description)
    if description is None:
        return None
    for kind, tensors in (("input", description.inputs), ("output", description.outputs)):
        for index, tensor in enumerate(tensors):
            if name in (tensor.name, _short(description, kind, index)):
                return tensor.name
    return None


@call("Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int, int]:
    """0 is an input without AIPP, 1 one with static AIPP; the second value would be the index of its parameters."""
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return 0, 0, code
    if index >= len(entry.model.inputs):
        return 0, 0, codes.INVALID_PARAM
    static = entry.model.options.get("insert_op_conf") and entry.model.inputs[index].dtype == "uint8"
    return _STATIC_AIPP if static else _WITHOUT_AIPP, _NO_INDEX, 0


def _description(desc: int) -> Description | None:
    found = handles.look(desc, Description)
    if found is None:
        reason.report("EH0002", param="modelDesc")
    return found


def _tensor(desc: int, index: int, which: str) -> Tensor | None:
    description = handles.look(desc, Description)
    if description is None:
        return None
    tensors: tuple[Tensor, ...] = description.inputs if which == "inputs" else description.outputs
    return tensors[index] if index < len(tensors) else None


def _failed() -> tuple[Dims, int]:
    return {}, codes.INVALID_PARAM


def _index(desc: int, name: str, which: str) -> tuple[int, int]:
    description = handles.look(desc, Description)
    tensors = () if description is None else description.inputs if which == "inputs" else description.outputs
    for index, tensor in enumerate(tensors):
        if tensor.name == name:
            return index, 0
    return 0, codes.INVALID_PARAM


def _dims(desc: int, index: int, kind: str, name: str, shape: tuple[int, ...]) -> Dims:
    description = handles.look(desc, Description)
    if len(name.encode()) > _LONGEST_NAME and description is not None:
        name = _short(description, kind, index)
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


def _short(description: Description, kind: str, index: int) -> str:
    model_id = description.of.id if description.of is not None else 0
    return f"acl_modelId_{model_id}_{kind}_{index}"
