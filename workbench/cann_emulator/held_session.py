"""ONNX Runtime by its C interface, in a call that keeps the interpreter's lock: no other Python thread runs meanwhile.

The vendor's `acl.mdl.execute` keeps the lock while the device computes; ONNX Runtime's own Python module gives it up.
The C interface is the library's stable one: functions stand in a table to which releases only append
(onnxruntime_c_api.h); those used here are in it since version 1.4.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import helper

Array = npt.NDArray[Any]
_VERSION = 11
_EXTENDED = 2
_ERRORS_ONLY = 4
_ARENA, _DEFAULT_MEMORY = 1, 0
_TABLE = {
    **{"GetErrorMessage": 2, "CreateEnv": 3, "CreateSessionFromArray": 8, "Run": 9, "CreateSessionOptions": 10},
    **{"SetSessionLogSeverityLevel": 22, "SetSessionGraphOptimizationLevel": 23, "SetIntraOpNumThreads": 24},
    **{"CreateTensorWithDataAsOrtValue": 49, "GetTensorMutableData": 51, "GetTensorElementType": 60},
    **{"GetDimensionsCount": 61, "GetDimensions": 62, "GetTensorTypeAndShape": 65, "CreateCpuMemoryInfo": 69},
    **{"ReleaseStatus": 93, "ReleaseSession": 95, "ReleaseValue": 96, "ReleaseTensorTypeAndShapeInfo": 99},
    **{"ReleaseSessionOptions": 100, "AddSessionConfigEntry": 130},
}
_GIVES_TEXT, _GIVES_NOTHING = "GetErrorMessage", "Release"


class NotHeld(Exception):
    """This installation of ONNX Runtime has no C library beside its Python module."""


class Refused(Exception):
    """ONNX Runtime refuses the model, or the values."""


class HeldSession:
    """A model that runs with the interpreter's lock held.

    Raises:
        NotHeld, Refused: see there.
    """

    def __init__(self, model: bytes, outputs: Sequence[str], *, threads: int, without: Sequence[str]) -> None:
        """
        Args:
            model: an ONNX file's content, weights included.
            without: optimizers that are off.
        """
        self._outputs = tuple(outputs)
        options = _made("CreateSessionOptions")
        try:
            _do("SetSessionLogSeverityLevel", options, ctypes.c_int(_ERRORS_ONLY))
            _do("SetSessionGraphOptimizationLevel", options, ctypes.c_int(_EXTENDED))
            _do("SetIntraOpNumThreads", options, ctypes.c_int(threads))
            key, names = b"optimization.disable_specified_optimizers", ";".join(without).encode()
            _do("AddSessionConfigEntry", options, ctypes.c_char_p(key), ctypes.c_char_p(names))
            content, size = ctypes.c_char_p(model), ctypes.c_size_t(len(model))
            self._session = _made("CreateSessionFromArray", _environment(), content, size, options)
        finally:
            _function("ReleaseSessionOptions")(options)
        self._close = weakref.finalize(self, _function("ReleaseSession"), self._session)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs in order, for inputs of the model's own types."""
        arrays = {name: np.ascontiguousarray(values) for name, values in feeds.items()}
        given: list[ctypes.c_void_p] = []
        made = (ctypes.c_void_p * len(self._outputs))()
        try:
            given.extend(_tensor(values) for values in arrays.values())
            _do(
                "Run",
                self._session,
                ctypes.c_void_p(None),
                _names(arrays),
                (ctypes.c_void_p * len(given))(*(value.value for value in given)),
                ctypes.c_size_t(len(given)),
                _names(self._outputs),
                ctypes.c_size_t(len(self._outputs)),
                made,
            )
            return [_array(ctypes.c_void_p(value)) for value in made]
        finally:
            for value in (*given, *(ctypes.c_void_p(v) for v in made if v)):
                _function("ReleaseValue")(value)


def cast(values: Array, dtype: npt.DTypeLike) -> Array:
    """`values.astype(dtype, copy=False)` with the lock held; NumPy gives it up for more than a few elements.

    Raises:
        NotHeld: see there.
    """
    wanted = np.dtype(dtype)
    if values.dtype == wanted or not values.size:
        return values.astype(wanted, copy=False)
    return _caster(values.dtype, wanted).run({"x": values.reshape(-1)})[0].reshape(values.shape)


@functools.cache
def _caster(given: np.dtype[Any], wanted: np.dtype[Any]) -> HeldSession:
    types = [helper.np_dtype_to_tensor_dtype(dtype) for dtype in (given, wanted)]
    x, y = (helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in zip("xy", types, strict=True))
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=types[1])], "cast", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return HeldSession(model.SerializeToString(), ["y"], threads=1, without=())


def _names(names: Any) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _tensor(values: Array) -> ctypes.c_void_p:
    """A view on the array, which must live as long."""
    shape = (ctypes.c_int64 * values.ndim)(*values.shape)
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    data, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
    dims = ctypes.c_size_t(values.ndim)
    return _made("CreateTensorWithDataAsOrtValue", _memory(), data, size, shape, dims, ctypes.c_int(kind))


def _array(value: ctypes.c_void_p) -> Array:
    info = _made("GetTensorTypeAndShape", value)
    try:
        kind, count = ctypes.c_int(), ctypes.c_size_t()
        _do("GetTensorElementType", info, ctypes.byref(kind))
        _do("GetDimensionsCount", info, ctypes.byref(count))
        dims = (ctypes.c_int64 * count.value)()
        _do("GetDimensions", info, dims, count)
    finally:
        _function("ReleaseTensorTypeAndShapeInfo")(info)
    dtype, shape = helper.tensor_dtype_to_np_dtype(kind.value), tuple(dims)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = _made("GetTensorMutableData", value)
    return np.frombuffer(ctypes.string_at(data.value or 0, size) if size else b"", dtype).reshape(shape)


def _made(name: str, *arguments: Any) -> ctypes.c_void_p:
    """What a function gives through its last argument."""
    place = ctypes.c_void_p()
    _do(name, *arguments, ctypes.byref(place))
    return place


def _do(name: str, *arguments: Any) -> None:
    status = _function(name)(*arguments)
    if status:
        message = _function("GetErrorMessage")(ctypes.c_void_p(status)).decode(errors="replace")
        _function("ReleaseStatus")(ctypes.c_void_p(status))
        raise Refused(message)


@functools.cache
def _function(name: str) -> Any:
    """By PYFUNCTYPE, which keeps the interpreter's lock."""
    result: Any = None if name.startswith(_GIVES_NOTHING) else ctypes.c_void_p
    if name == _GIVES_TEXT:
        result = ctypes.c_char_p
    return ctypes.PYFUNCTYPE(result)(_table()[_TABLE[name]])


@functools.cache
def _table() -> Any:
    files = sorted((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    if not files:
        raise NotHeld(f"there is no libonnxruntime.so beside {ort.__file__}")
    library = ctypes.PyDLL(str(files[0]))
    library.OrtGetApiBase.restype = ctypes.c_void_p
    first = ctypes.cast(library.OrtGetApiBase(), ctypes.POINTER(ctypes.c_void_p))[0]
    table = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(first)(_VERSION)
    return ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def _environment() -> ctypes.c_void_p:
    return _made("CreateEnv", ctypes.c_int(_ERRORS_ONLY), ctypes.c_char_p(b"held"))


@functools.cache
def _memory() -> ctypes.c_void_p:
    return _made("CreateCpuMemoryInfo", ctypes.c_int(_ARENA), ctypes.c_int(_DEFAULT_MEMORY))
