"""Descriptions of `acl.mdl`: what a loaded model takes and gives, and its gears (pyacl.md §1.5, §7); and datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar

from workbench.cann_emulator.acl import errors, handles, models
from workbench.cann_emulator.acl.call import ask, call
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.acl.models import LoadedModel, item_bytes
from workbench.cann_emulator.om import Gear, OfflineModel, Tensor, input_shapes

_GEAR_INPUT = "ascend_mbatch_shape_data"
_ALL_INPUTS = 2**64 - 1
"""Index -1 as an unsigned size: the only index that the gear questions take."""
_MOST_GEARS = 4096
_LONGEST_NAME = 127
_UNDEFINED = -1
_WITHOUT_AIPP, _NO_INDEX = 0, 0xFFFFFFFF
Dims = dict[str, Any]
"""{"name": text, "dimCount": int, "dims": [int, …]}; empty when the call failed."""


@dataclass(slots=True, kw_only=True, eq=False)
class Description(Made):
    """What `create_desc` gives; filled by `get_desc`."""

    KIND: ClassVar[str] = "model descriptions"
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    of: LoadedModel | None = None  # the load it was filled from


# --- what a model says of itself at its gears ---


def gear_values(model: OfflineModel) -> int:
    """How many numbers choose a gear (pyacl.md §7): one batch, height and width, or every dynamic axis."""
    fixed = {"dynamic_batch_size": 1, "dynamic_image_size": 2}.get(model.gear_kind)
    return fixed or sum(size == -1 for tensor in model.inputs for size in tensor.shape)


def gear_key(model: OfflineModel, gear: Gear) -> tuple[int, ...]:
    """The numbers that choose this gear."""
    return gear.dims[: gear_values(model)]


def gear_keys(model: OfflineModel, kind: str) -> list[tuple[int, ...]]:
    """Those of every gear, where the model has gears of this kind."""
    return [gear_key(model, gear) for gear in model.gears] if model.gear_kind == kind else []


def output_shape(model: OfflineModel, index: int, gear: int | None = None) -> tuple[int, ...]:
    """At a gear; the largest where none is given."""
    if not model.gear_kind:
        return model.outputs[index].shape
    return _largest_output(model, index) if gear is None else model.gears[gear].outputs[index].shape


def output_bytes(model: OfflineModel, index: int) -> int:
    """Size of an output, of the largest gear; as large as can be where only the data tell."""
    return prod(_largest_output(model, index)) * item_bytes(model.outputs[index].dtype)


def _largest_output(model: OfflineModel, index: int) -> tuple[int, ...]:
    return max((gear.outputs[index].shape for gear in model.gears), key=prod)


# --- descriptions ---


ask("mdl", "", create_desc=lambda: handles.give(Description()))
ask("mdl", "k", "r", destroy_desc=lambda desc: handles.end(desc, Description, "modelDesc"))


@call("mdl", "kI", "r")
def get_desc(desc: int, model_id: int) -> None:
    """Fill a description; what it held is gone."""
    of, description = models.found(model_id), handles.need(desc, Description, "modelDesc")
    model = of.model
    extra = Tensor(name=_GEAR_INPUT, dtype="int32", shape=(gear_values(model),))
    description.inputs = (*model.inputs, extra) if model.gear_kind else model.inputs
    # a file that was made without the compiler has no names in the form of acl
    names = model.output_names or tuple(tensor.name for tensor in model.outputs)
    description.outputs = tuple(replace(t, name=name) for name, t in zip(names, model.outputs, strict=True))
    description.of = of


def _load_of(desc: int) -> LoadedModel:
    """The load that a description was filled from; Failed where it was from none."""
    of = handles.need(desc, Description).of
    if of is None:
        raise Failed(errors.INVALID_PARAM)
    return of


def _tensors(desc: int, which: str) -> tuple[Tensor, ...]:
    tensors: tuple[Tensor, ...] = getattr(handles.need(desc, Description), f"{which}s")
    return tensors


def _tensor(desc: int, which: str, index: int) -> Tensor:
    tensors = _tensors(desc, which)
    if index >= len(tensors):
        raise Failed(errors.INVALID_PARAM)
    return tensors[index]


def _bytes(desc: int, which: str, index: int) -> int:
    """Of the largest gear."""
    _tensor(desc, which, index)
    model = _load_of(desc).model
    if which == "output":
        return output_bytes(model, index)
    if index == len(model.inputs):
        return 4 * gear_values(model)
    return max(prod(input_shapes(model, gear)[index]) for gear in model.gears) * item_bytes(model.inputs[index].dtype)


def _dims(desc: int, which: str, index: int, *, current: bool = False) -> Dims:
    """Of an output at the gear set last on the model where the `current` ones are asked for; else, and before any was
    set, at the largest."""
    tensor, of = _tensor(desc, which, index), _load_of(desc)
    gear = of.gear if current else None
    shape = tensor.shape if which == "input" else output_shape(of.model, index, gear)
    longest = len(tensor.name.encode()) > _LONGEST_NAME
    name = f"acl_modelId_{of.handle}_{which}_{index}" if longest else tensor.name
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


def _index(desc: int, which: str, name: str) -> int:
    names = [tensor.name for tensor in _tensors(desc, which)]
    if name not in names:
        raise Failed(errors.INVALID_PARAM)
    return names.index(name)


_PAIRS: tuple[tuple[str, str, str, Callable[..., Any], object], ...] = (
    ("get_num_{}s", "k", "k", lambda desc, which: len(_tensors(desc, which)), None),
    ("get_{}_size_by_index", "kk", "k", _bytes, None),
    ("get_{}_dims", "kk", "dr", _dims, None),
    ("get_{}_name_by_index", "kk", "s", lambda *place: _tensor(*place).name, ""),
    ("get_{}_index_by_name", "ks", "kr", _index, None),
    ("get_{}_data_type", "kk", "i", lambda *place: models.DTYPE_CODES[_tensor(*place).dtype], _UNDEFINED),
    ("get_{}_format", "kk", "i", lambda *place: _tensor(*place).format, _UNDEFINED),
)
"""Functions for inputs and for outputs, which ask (description, 'input' or 'output', index or name): name, forms, what
answers, and what a function without a code gives where it fails."""


def _asking(which: str, answer: Callable[..., Any], **more: bool) -> Callable[..., Any]:
    return lambda desc, *argument: answer(desc, which, *argument, **more)


for _which in ("input", "output"):
    for _name, _takes, _gives, _answer, _missing in _PAIRS:
        ask("mdl", _takes, _gives, _missing, **{_name.format(_which): _asking(_which, _answer)})
# the second form of inputs differs only with static AIPP, which is not emulated
ask("mdl", "kk", "dr", get_input_dims_v2=_asking("input", _dims))
ask("mdl", "kk", "dr", get_cur_output_dims=_asking("output", _dims, current=True))


@call("mdl", "Ik", "ikr")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int]:
    """0 is an input without AIPP; the second value would be the index of its parameters."""
    if index >= len(models.found(model_id).model.inputs):
        raise Failed(errors.INVALID_PARAM)
    return _WITHOUT_AIPP, _NO_INDEX


# --- what can be asked of gears (pyacl.md §7, §2.5 "Gears") ---


@call("mdl", "k", "dr", device=False)
def get_dynamic_batch(desc: int) -> dict[str, Any]:
    batches = [batch for (batch,) in gear_keys(_load_of(desc).model, "dynamic_batch_size")]
    return {"batchCount": len(batches), "batch": batches}


@call("mdl", "kk", "dr", device=False)
def get_dynamic_hw(desc: int, index: int) -> dict[str, Any]:
    """[height, width] of each gear; the index is ignored."""
    sizes = [list(key) for key in gear_keys(_load_of(desc).model, "dynamic_image_size")]
    return {"hwCount": len(sizes), "hw": sizes}


def _all_dims(desc: int, index: int, count: int = _MOST_GEARS) -> list[Dims]:
    """One dims dict per gear, with all axes of all inputs in one list."""
    model = _load_of(desc).model
    gears = model.gears if model.gear_kind == "dynamic_dims" else ()
    if index != _ALL_INPUTS or not len(gears) <= count <= _MOST_GEARS:
        raise Failed(errors.INVALID_PARAM)
    axes = [[size for shape in input_shapes(model, gear) for size in shape] for gear in gears]
    return [{"name": "", "dimCount": len(dims), "dims": dims} for dims in axes]


ask("mdl", "kk", "kr", get_input_dynamic_gear_count=lambda desc, index: len(_all_dims(desc, index)))
ask("mdl", "kkk", "lr", get_input_dynamic_dims=_all_dims)


# --- data buffers and datasets (pyacl.md §1.5, §1.6) ---


@dataclass(slots=True, kw_only=True, eq=False)
class DataBuffer(Made):
    """A pointer and a size; the memory is the program's."""

    KIND: ClassVar[str] = "data buffers"
    address: int
    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class Dataset(Made):
    """Inputs or outputs of a model, by index."""

    KIND: ClassVar[str] = "datasets"
    buffers: list[DataBuffer] = field(default_factory=list)
    gear: tuple[int, ...] | None = None  # of `set_dynamic_*`; kept even when the model refused it (pyacl.md §7)


@call("", "kkk", "r", device=False)
def update_data_buffer(buffer: int, address: int, size: int) -> None:
    found = handles.need(buffer, DataBuffer, "dataBuffer", "data buffer")
    found.address, found.size = address, size


ask(
    "",
    get_data_buffer_addr=lambda buffer: handles.need(buffer, DataBuffer).address,
    get_data_buffer_size=lambda buffer: handles.need(buffer, DataBuffer).size & 0xFFFFFFFF,  # the old form of 32 bits
    get_data_buffer_size_v2=lambda buffer: handles.need(buffer, DataBuffer).size,
)
# the memory of a data buffer, and the buffers of a dataset, stay
ask("", "k", "r", destroy_data_buffer=lambda buffer: handles.end(buffer, DataBuffer, "dataBuffer", "data buffer"))
ask("mdl", "k", "r", destroy_dataset=lambda dataset: handles.end(dataset, Dataset, "dataset", "dataset"))
ask("", "kk", create_data_buffer=lambda address, size: handles.give(DataBuffer(address=address, size=size)))
ask("", "i", data_type_size=lambda data_type: models.DTYPE_BYTES.get(data_type, 0))  # 0 for undefined and string


def dataset_of(handle: int) -> Dataset:
    return handles.need(handle, Dataset, "dataset", "dataset")


@call("mdl", "kk", "kr", device=False)
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """The dataset again."""
    dataset_of(dataset).buffers.append(handles.need(buffer, DataBuffer, "dataBuffer"))
    return dataset


@call("mdl", "kk", "k", device=False)
def get_dataset_buffer(dataset: int, index: int) -> int:
    buffers = handles.need(dataset, Dataset).buffers
    return buffers[index].handle if index < len(buffers) else 0


ask("mdl", "", create_dataset=lambda: handles.give(Dataset()))
ask("mdl", get_dataset_num_buffers=lambda dataset: len(handles.need(dataset, Dataset).buffers))
