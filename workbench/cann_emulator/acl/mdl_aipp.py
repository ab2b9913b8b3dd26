"""Image preprocessing of `acl.mdl` (AIPP), as far as a model without it answers: no model here has any."""

from __future__ import annotations

from workbench.cann_emulator.acl import codes, handles, mdl_load, reason
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.datasets import Dataset

WITHOUT_AIPP = 0
_NO_INDEX = 2**64 - 1


class _Aipp:
    def __init__(self, batch: int, where: tuple[str, int]) -> None:
        self.batch, self.site = batch, where


@call("K", "k", device=False)
def create_aipp(batch: int) -> int:
    return handles.give(_Aipp(batch, site())) if batch else 0


@call("k", "r", device=False)
def destroy_aipp(aipp: int) -> int:
    if handles.look(aipp, _Aipp) is None:
        reason.report("EH0002", param="aippParmsSet")
        return codes.INVALID_PARAM
    handles.drop(aipp)
    return 0


@call("Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int, int]:
    """0 is an input without AIPP; the second value would be the index of its parameters."""
    entry, code = mdl_load.found(model_id)
    if entry is None:
        return 0, 0, code
    return (WITHOUT_AIPP, _NO_INDEX, 0) if index < len(entry.model.inputs) else (0, 0, codes.INVALID_PARAM)


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


_NOT_STATIC = 100038
_AIPP_NOT_EXIST = 145015


def _set(model_id: int, dataset: int, aipp: int) -> int:
    entry, code = mdl_load.found(model_id)
    if handles.look(aipp, _Aipp) is None or handles.look(dataset, Dataset) is None:
        return codes.INVALID_PARAM
    return code if entry is None else _AIPP_NOT_EXIST
