"""The module `acl.op`: attributes of single operators, and why no single operator runs here.

The emulated atc makes no models of single operators (--singleop), so there is none to be found: what would run one
gives OP_NOT_FOUND, as the vendor's library does when no operator model in the folder of `set_model_dir` fits
(pyacl.md §2.6, 100024). Forms of the calls: the binding's open source of 2026, op.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.cann_emulator.acl import codes, handles, leaks, reason
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.datasets import DataBuffer, TensorDesc


@dataclass(slots=True, kw_only=True, eq=False)
class _Attributes:
    site: tuple[str, int]
    handle: int = 0
    values: dict[str, object] = field(default_factory=dict)


@call("s", "r", device=False)
def set_model_dir(model_dir: str) -> int:
    """A folder that cannot be read gives READ_MODEL_FAILURE [inferred]."""
    if not Path(model_dir).is_dir():
        reason.report("EH0003", path=model_dir, reason="it is no folder")
        return codes.READ_MODEL_FAILURE
    return 0


@call("kk", "r", device=False)
def load(model: int, size: int) -> int:
    if not (model and size):
        return codes.INVALID_PARAM
    return _not_found("the model in memory")


@call("", "k", device=False)
def create_attr() -> int:
    attributes = _Attributes(site=site())
    attributes.handle = handles.give(attributes)
    return attributes.handle


@call("k", "n", device=False)
def destroy_attr(attr: int) -> None:
    if handles.look(attr, _Attributes) is not None:
        handles.drop(attr)


@call("ksi", "r", device=False)
def set_attr_bool(attr: int, name: str, value: int) -> int:
    return _set(attr, name, bool(value))


@call("ksK", "r", device=False)
def set_attr_int(attr: int, name: str, value: int) -> int:
    return _set(attr, name, value - 2**64 if value >= 2**63 else value)


@call("ksd", "r", device=False)
def set_attr_float(attr: int, name: str, value: float) -> int:
    return _set(attr, name, float(value))


@call("kss", "r", device=False)
def set_attr_string(attr: int, name: str, value: str) -> int:
    return _set(attr, name, value)


@call("ksO", "r", device=False)
def set_attr_list_bool(attr: int, name: str, values: Any) -> int:
    return _set(attr, name, _listed(values))


@call("ksO", "r", device=False)
def set_attr_list_int(attr: int, name: str, values: Any) -> int:
    return _set(attr, name, _listed(values))


@call("ksO", "r", device=False)
def set_attr_list_float(attr: int, name: str, values: Any) -> int:
    return _set(attr, name, _listed(values))


@call("ksO", "r", device=False)
def set_attr_list_string(attr: int, name: str, values: list[str]) -> int:
    return _set(attr, name, _listed(values))


@call("ksO", "r", device=False)
def set_attr_list_list_int(attr: int, name: str, values: list[list[int]]) -> int:
    return _set(attr, name, [_listed(v) for v in _listed(values)])


@call("ksi", "kr", device=False)
def set_attr_data_type(attr: int, name: str, value: int) -> tuple[int, int]:
    return attr, _set(attr, name, value)


@call("ksO", "kr", device=False)
def set_attr_list_data_type(attr: int, name: str, values: list[int]) -> tuple[int, int]:
    return attr, _set(attr, name, _listed(values))


@call("K", "r", device=False)
def set_max_op_queue_num(number: int) -> int:
    return 0 if number else codes.INVALID_PARAM


@call("sOOOOkk", "r")
def execute(
    op_type: str,
    input_desc: list[int],
    inputs: list[int],
    output_desc: list[int],
    outputs: list[int],
    attr: int,
    stream: int,
) -> int:
    return _run(op_type, (input_desc, output_desc), (inputs, outputs))


@call("sOOOOkk", "r")
def execute_v2(
    op_type: str,
    input_desc: list[int],
    inputs: list[int],
    output_desc: list[int],
    outputs: list[int],
    attr: int,
    stream: int,
) -> int:
    return _run(op_type, (input_desc, output_desc), (inputs, outputs))


@call("sOOk", "r")
def update_params(op_type: str, input_desc: list[int], output_desc: list[int], attr: int) -> int:
    return _run(op_type, (input_desc, output_desc), ())


@call("sOOk", "kr")
def create_handle(op_type: str, input_desc: list[int], output_desc: list[int], attr: int) -> tuple[int, int]:
    return 0, _run(op_type, (input_desc, output_desc), ())


@call("k", "n", device=False)
def destroy_handle(handle: int) -> None:
    """No handle was ever given."""


@call("kOOk", "r")
def execute_with_handle(handle: int, inputs: list[int], outputs: list[int], stream: int) -> int:
    return codes.INVALID_PARAM


@call("kkkkik", "r")
def cast(src_desc: int, src_buffer: int, dst_desc: int, dst_buffer: int, truncate: int, stream: int) -> int:
    return _run("Cast", ([src_desc], [dst_desc]), ([src_buffer], [dst_buffer]))


@call("kki", "kr")
def create_handle_for_cast(src_desc: int, dst_desc: int, truncate: int) -> tuple[int, int]:
    return 0, _run("Cast", ([src_desc], [dst_desc]), ())


@call("sOOiOk", "r")
def infer_shape(
    op_type: str, input_desc: list[int], inputs: list[int], num_outputs: int, output_desc: list[int], attr: int
) -> int:
    return _run(op_type, (input_desc, output_desc), (inputs,))


def _run(op_type: str, descs: tuple[list[int], ...], buffers: tuple[list[int], ...]) -> int:
    """Null and stale handles first, then the operator that nobody compiled."""
    for found, kind in ((descs, TensorDesc), (buffers, DataBuffer)):
        for given in found:
            if not isinstance(given, list):
                raise TypeError("argument 2, 3, 4, or 5 is not list")
            if any(handles.look(handle, kind) is None for handle in given):
                reason.report("EH0002", param="inputDesc" if kind is TensorDesc else "inputs")
                return codes.INVALID_PARAM
    return _not_found(op_type)


def _not_found(what: str) -> int:
    text = f"no compiled single operator fits {what}: this module is emulated and runs whole models only (acl.mdl)"
    reason.report("EH0006", feature="A single operator", reason=text)
    return codes.OP_NOT_FOUND


def _set(attr: int, name: str, value: object) -> int:
    found = handles.look(attr, _Attributes)
    if found is None or not name:
        reason.report("EH0002", param="attr")
        return codes.INVALID_PARAM
    found.values[name] = value
    return 0


def _listed(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        return list(values.reshape(-1).tolist())
    if not isinstance(values, list):
        raise TypeError("argument 3 is not list or numpy array")
    return values


leaks.watch(_Attributes, "operator attributes")
__all__ = [
    *("cast", "create_attr", "create_handle", "create_handle_for_cast", "destroy_attr", "destroy_handle", "execute"),
    *("execute_v2", "execute_with_handle", "infer_shape", "load", "set_attr_bool", "set_attr_data_type"),
    *("set_attr_float", "set_attr_int", "set_attr_list_bool", "set_attr_list_data_type", "set_attr_list_float"),
    *("set_attr_list_int", "set_attr_list_list_int", "set_attr_list_string", "set_attr_string"),
    *("set_max_op_queue_num", "set_model_dir", "update_params"),
]


def __dir__() -> list[str]:
    return sorted(__all__)
