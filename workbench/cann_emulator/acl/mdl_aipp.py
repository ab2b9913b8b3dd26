"""Image preprocessing of `acl.mdl` (AIPP) with parameters at run time, as far as a model without it answers.

What ATC builds into a model (static AIPP) is part of the model, whose input then is the image.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.cann_emulator.acl import codes, handles, leaks, mdl_load, reason
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.datasets import Dataset

WITHOUT_AIPP, STATIC_AIPP = 0, 1
_NO_INDEX = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Aipp:
    batch: int
    site: tuple[str, int]


@call("K", "k", device=False)
def create_aipp(batch: int) -> int:
    return handles.give(_Aipp(batch=batch, site=site())) if batch else 0


@call("k", "r", device=False)
def destroy_aipp(aipp: int) -> int:
    if handles.look(aipp, _Aipp) is None:
        reason.report("EH0002", param="aippParmsSet")
        return codes.INVALID_PARAM
    handles.drop(aipp)
    return 0


@call("Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int, int]:
    """0 is an input without AIPP, 1 one with static AIPP; the second value would be the index of its parameters."""
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return 0, 0, code
    if index >= len(entry.model.inputs):
        return 0, 0, codes.INVALID_PARAM
    static = entry.model.options.get("insert_op_conf") and entry.model.inputs[index].dtype == "uint8"
    return STATIC_AIPP if static else WITHOUT_AIPP, _NO_INDEX, 0


@call("Ik", "nr")
def get_first_aipp_info(model_id: int, index: int) -> tuple[None, int]:
    entry, code = mdl_load.found(model_id)
    return None, code if entry is None else _NOT_STATIC


@call("Ikkk", "r")
def set_input_aipp(model_id: int, dataset: int, index: int, aipp: int) -> int:
    return _set(model_id, dataset, aipp)


@call("Ikkk", "r")
def set_aipp_by_input_index(model_id: int, dataset: int, index: int, aipp: int) -> int:
    return _set(model_id, dataset, aipp)


@call("kI", "r", device=False)
def set_aipp_input_format(aipp: int, input_format: int) -> int:
    return _kept(aipp)


@call("kiiiiiiiiiiiiiiii", "r", device=False)
def set_aipp_csc_params(aipp: int, *parameters: int) -> int:
    """Switch, nine entries of the matrix, three output biases, three input biases."""
    return _kept(aipp)


@call("ki", "r", device=False)
def set_aipp_rbuv_swap_switch(aipp: int, switch: int) -> int:
    return _kept(aipp)


@call("ki", "r", device=False)
def set_aipp_ax_swap_switch(aipp: int, switch: int) -> int:
    return _kept(aipp)


@call("kii", "r", device=False)
def set_aipp_src_image_size(aipp: int, width: int, height: int) -> int:
    return _kept(aipp) if width > 0 and height > 0 else codes.INVALID_PARAM


@call("kiiiiiK", "r", device=False)
def set_aipp_crop_params(aipp: int, switch: int, left: int, top: int, width: int, height: int, batch: int) -> int:
    return _kept(aipp, batch)


@call("kiiiiiK", "r", device=False)
def set_aipp_padding_params(aipp: int, switch: int, top: int, bottom: int, left: int, right: int, batch: int) -> int:
    return _kept(aipp, batch)


@call("kiiiiK", "r", device=False)
def set_aipp_dtc_pixel_mean(aipp: int, first: int, second: int, third: int, fourth: int, batch: int) -> int:
    return _kept(aipp, batch)


@call("kddddK", "r", device=False)
def set_aipp_dtc_pixel_min(aipp: int, first: float, second: float, third: float, fourth: float, batch: int) -> int:
    return _kept(aipp, batch)


@call("kddddK", "r", device=False)
def set_aipp_pixel_var_reci(aipp: int, first: float, second: float, third: float, fourth: float, batch: int) -> int:
    return _kept(aipp, batch)


_NOT_STATIC = 100038
_AIPP_NOT_EXIST = 145015


def _set(model_id: int, dataset: int, aipp: int) -> int:
    entry, code = mdl_load.found(model_id)
    if handles.look(aipp, _Aipp) is None or handles.look(dataset, Dataset) is None:
        return codes.INVALID_PARAM
    return code if entry is None else _AIPP_NOT_EXIST


def _kept(aipp: int, batch: int = 0) -> int:
    """Parameters of a description that no model here can take: checked as far as they name something."""
    found = handles.look(aipp, _Aipp)
    if found is None:
        reason.report("EH0002", param="aippParmsSet")
        return codes.INVALID_PARAM
    return 0 if batch < found.batch else codes.INVALID_PARAM


leaks.watch(_Aipp, "AIPP descriptions")
