"""The top of `acl`: data buffers, tensor descriptions (pyacl.md §1.5, §1.6), init and finalize of the process (§1.1,
§2.5 "Init and finalize"), versions, names, error texts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from workbench.cann_emulator.acl import config, dumping, errors, handles, models, profile
from workbench.cann_emulator.acl.call import call, getters, site
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made, need
from workbench.cann_emulator.acl.rt_device import SOC_NAME

_MOST_DIMS = 128


@dataclass(slots=True, kw_only=True, eq=False)
class DataBuffer(Made):
    """A pointer and a size; the memory is the program's."""

    KIND: ClassVar[str] = "data buffers"
    address: int
    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class TensorDesc(Made):
    KIND: ClassVar[str] = "tensor descriptions"
    dtype: int
    dims: list[int]
    format: int


@dataclass(slots=True, kw_only=True, eq=False)
class Dataset(Made):
    """Inputs or outputs of a model, by index.

    Attributes:
        described: tensor descriptions by index, where given.
        gear: value of `set_dynamic_*` for this dataset; kept even when the model refused it (pyacl.md §7).
    """

    KIND: ClassVar[str] = "datasets"
    buffers: list[DataBuffer] = field(default_factory=list)
    described: dict[int, TensorDesc] = field(default_factory=dict)
    gear: tuple[int, ...] | None = None


@call("kk", "k", device=False)
def create_data_buffer(address: int, size: int) -> int:
    """Stores pointer and size, and checks nothing."""
    return handles.give(DataBuffer(address=address, size=size, site=site()))


@call("k", "r", device=False)
def destroy_data_buffer(buffer: int) -> None:
    """Leaves the memory alone."""
    need(buffer, DataBuffer, "dataBuffer", "data buffer")
    handles.drop(buffer)


@call("kkk", "r", device=False)
def update_data_buffer(buffer: int, address: int, size: int) -> None:
    found = need(buffer, DataBuffer, "dataBuffer", "data buffer")
    found.address, found.size = address, size


def _tensor_bytes(desc: int) -> int:
    """0 where an axis is not known."""
    found = need(desc, TensorDesc)
    elements = 0 if any(size < 0 for size in found.dims) else prod(found.dims)
    return elements * models.DTYPE_BYTES.get(found.dtype, 0)


getters(
    globals(),
    get_data_buffer_addr=lambda buffer: need(buffer, DataBuffer).address,
    get_data_buffer_size=lambda buffer: need(buffer, DataBuffer).size & 0xFFFFFFFF,  # the old form of 32 bits
    get_data_buffer_size_v2=lambda buffer: need(buffer, DataBuffer).size,
    get_tensor_desc_size=_tensor_bytes,
    get_tensor_desc_num_dims=lambda desc: len(need(desc, TensorDesc).dims),
)


@call("i", "k", device=False)
def data_type_size(data_type: int) -> int:
    """Bytes per element; 0 for undefined and string."""
    return models.DTYPE_BYTES.get(data_type, 0)


@call("iOi", "k", device=False)
def create_tensor_desc(data_type: int, dims: list[int], format: int) -> int:
    if not isinstance(dims, list) or not all(isinstance(size, int) for size in dims):
        raise TypeError("argument 2 is not list of int")
    if len(dims) > _MOST_DIMS:
        raise Failed(errors.INVALID_PARAM)
    return handles.give(TensorDesc(dtype=data_type, dims=list(dims), format=format, site=site()))


@call("k", "n", device=False)
def destroy_tensor_desc(desc: int) -> None:
    found = handles.look(desc, TensorDesc)
    if found is None:
        errors.undefined(f"destroy_tensor_desc of {desc:#x}, which is no live description")
    elif not found.own:  # that of a dataset goes with it
        handles.drop(desc)


@call("kk", "Kr", device=False)
def get_tensor_desc_dim_v2(desc: int, index: int) -> int:
    dims = need(desc, TensorDesc).dims
    if index >= len(dims):
        raise Failed(errors.INVALID_PARAM)
    return dims[index]


# --- init and finalize ---


@dataclass(slots=True)
class _Process:
    """Attributes:
    references: `init` calls that `finalize_reference` did not undo yet.
    content: of the first configuration of the process; None before any `init`.
    finalized: a second `finalize` in a row gives 100037.
    """

    references: int = 0
    content: bytes | None = None
    finalized: bool = False


PROCESS = _Process()


def require_init() -> None:
    """
    Raises:
        Failed: 145001, the library is not initialized.
    """
    if not PROCESS.references:
        raise Failed(errors.GE_EXEC_NOT_INIT)


@call("|s", "r", device=False)
def init(path: str = "") -> None:
    """Once per process; a second call gives 100002, does no harm and counts."""
    if PROCESS.references:
        PROCESS.references += 1
        raise Failed(errors.REPEAT_INITIALIZE)
    dump, content = config.read(path) if path else ({}, b"")
    if PROCESS.content is not None and PROCESS.content != content:
        raise errors.invalid("configPath", path, "another configuration was used before")
    PROCESS.content, PROCESS.references, PROCESS.finalized = content, 1, False
    dumping.configure(dump)
    profile.begin()


@call("", "r", device=False)
def finalize() -> None:
    """Everything ends at once, whatever the count is; a second call gives 100037."""
    if PROCESS.finalized:
        raise Failed(errors.REPEAT_FINALIZE)
    _end()


@call("", "Kr", device=False)
def finalize_reference() -> int:
    """One `init` less, and how many are left; the last one ends everything."""
    if not PROCESS.references:
        raise Failed(errors.REPEAT_FINALIZE)
    if PROCESS.references > 1:
        PROCESS.references -= 1
        return PROCESS.references
    _end()
    return 0


def _end() -> None:
    """The graph engine unloads its models; devices, contexts and memory stay until reset or exit."""
    profile.end()
    PROCESS.references, PROCESS.finalized = 0, True
    dumping.configure({})
    try:
        handles.at_finalize()
    finally:
        models.unload_all()


@call("", "s", device=False)
def get_recent_err_msg() -> str | None:
    """The reason texts of this thread since the last call; None when there are none."""
    return errors.take()


@call("", "s", device=False)
def get_soc_name() -> str:
    return SOC_NAME


_log = logging.getLogger("acl")
_log.addHandler(logging.NullHandler())  # the CANN log is no console: a warning must not reach stderr by default
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@call("is", "n", device=False)
def app_log(level: int, message: str) -> None:
    """To the logger `acl`, which stands for the CANN log."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", message)
