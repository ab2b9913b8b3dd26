"""The emulated module `acl` of CANN 8.5.0 (pyACL): AscendCL as documented, on a device that is modelled.

Public are the functions in the tables of pyacl.md §1, in the modules `rt`, `mdl`, `util` and at the top, and a few
beside them that programs for whole models call. Not there: single operators, tensor descriptions (shape ranges are not
compiled either), the picture and video units, AIPP with parameters at run time, profiling from inside (msprof does it
from outside). A call that fails raises `errors.Failed` inside, which `call` makes a code of. The rest is the library
behind:

    call         argument forms and result shapes    errors      codes, error texts, strict mode, faults on request
    rt_device    devices, contexts, threads          streams     queues, events, callbacks
    memory       of the device, and page-locked      clock       the modelled time, durations
    models       loads; `descriptions` and datasets     execution   checks and runs
    handles      objects behind ints, and leaks      dumping     acl.json, dumps of tensors, the overflow check
    top          init, finalize, names               profile     tables for msprof

Environment: CANN_EMULATOR_{VERSION,SOC,DEVICES,HBM_MB,STATE,FAULTS,STRICT,LEAKS,PACED,PROFILE},
ASCEND_RT_VISIBLE_DEVICES.
"""

from __future__ import annotations

from workbench.cann_emulator.acl import events, execution
from workbench.cann_emulator.acl import util as util_functions
from workbench.cann_emulator.acl.call import FUNCTIONS, module_of
from workbench.cann_emulator.acl.top import emulated
from workbench.cann_emulator.revision import emulator

DECLARING = (events, execution, util_functions)
"""Their functions, and those of what they import, are declared when they are imported."""
rt = module_of("rt")
"""Devices, contexts, streams, events, memory."""
mdl = module_of("mdl")
"""Models, descriptions, datasets, execution."""
util = module_of("util")
"""Pointers of Python objects, threads."""
EMULATOR = emulator()
"""Which emulator this is; the vendor's module has neither this name nor `emulated`."""

globals().update(FUNCTIONS[""])
__all__ = [*FUNCTIONS[""], "EMULATOR", "emulated", "mdl", "rt", "util"]

_NOT_EMULATED = {
    "op": "single operators",
    **dict.fromkeys(("media", "himpi"), "an interface of the picture and video units (DVPP)"),
    "blas": "matrix products as single operators",
    "fv": "feature retrieval",
    "tdt": "the transfer of training data",
    "prof": "profiling from inside of a program (msprof profiles it from outside)",
    "create_tensor_desc": "the description of a tensor of an operator or of a shape range",
}
"""What the vendor's has besides; none of it is needed to run a whole model."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name in _NOT_EMULATED:
        raise AttributeError(f"acl.{name}, {_NOT_EMULATED[name]}, is not emulated")
    raise AttributeError(f"module 'acl' has no attribute {name!r}")
