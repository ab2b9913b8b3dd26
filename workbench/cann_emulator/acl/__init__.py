"""The emulated module `acl` of CANN 8.5.0 (pyACL): AscendCL as documented, on a device that is modelled.

Public are the functions listed in pyacl.md §1, in the modules `rt`, `mdl`, `util`, `prof` and at the top; `media` and
`op` hold descriptions and refuse what needs other units or single operators. Everything else in this package is the
library behind them:

    call         argument forms and result shapes; faults on request
    contexts     devices, contexts, threads          streams     queues, events, the virtual clock
    memory       device memory                       pinned      page-locked host memory
    models       loads, descriptions, gears          execution   checks and runs
    reason       error texts                         last_error  the last code of a thread
    leaks        what a program left behind           paced    the modelled time on the machine's clock
    emulated     what the clock rests on, for who asks

Environment: CANN_EMULATOR_{VERSION,DEVICES,HBM_MB,STATE,FAULTS,STRICT,LEAKS,PACED,PROFILE}, ASCEND_RT_VISIBLE_DEVICES.
"""

from __future__ import annotations

from workbench.cann_emulator.acl import emulated, mdl, media, op, prof, rt, util
from workbench.cann_emulator.acl.top_data import (
    create_data_buffer,
    create_tensor_desc,
    data_type_size,
    destroy_data_buffer,
    destroy_tensor_desc,
    float16_to_float,
    float_to_float16,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    get_tensor_desc_dim,
    get_tensor_desc_dim_range,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_desc_name,
    set_tensor_format,
    set_tensor_origin_format,
    set_tensor_origin_shape,
    set_tensor_shape,
    set_tensor_shape_range,
    set_tensor_storage_format,
    set_tensor_storage_shape,
    update_data_buffer,
)
from workbench.cann_emulator.acl.top_process import (
    app_log,
    finalize,
    finalize_reference,
    get_cann_version,
    get_recent_err_msg,
    get_soc_name,
    get_version,
    get_version_str,
    init,
)
from workbench.cann_emulator.revision import emulator

EMULATOR = emulator()
"""Which emulator this is; the vendor's module has neither this name nor `emulated`."""

__all__ = [
    "EMULATOR",
    "app_log",
    "create_data_buffer",
    "create_tensor_desc",
    "data_type_size",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "emulated",
    "finalize",
    "finalize_reference",
    "float16_to_float",
    "float_to_float16",
    "get_cann_version",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim",
    "get_tensor_desc_dim_range",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "get_version",
    "get_version_str",
    "init",
    "mdl",
    "media",
    "op",
    "prof",
    "rt",
    "set_tensor_desc_name",
    "set_tensor_format",
    "set_tensor_origin_format",
    "set_tensor_origin_shape",
    "set_tensor_shape",
    "set_tensor_shape_range",
    "set_tensor_storage_format",
    "set_tensor_storage_shape",
    "update_data_buffer",
    "util",
]


_NOT_EMULATED = {
    "himpi": "the second interface of the picture and video units (DVPP)",
    "blas": "matrix products as single operators",
    "fv": "feature retrieval",
    "tdt": "the transfer of training data",
}
"""Modules that the vendor's has besides; none of them is needed to run a text model."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name in _NOT_EMULATED:
        raise AttributeError(f"acl.{name}, {_NOT_EMULATED[name]}, is not emulated")
    raise AttributeError(f"module 'acl' has no attribute {name!r}")
