"""What ONNX Runtime raises."""

from onnxruntime.capi import onnxruntime_pybind11_state as _state

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(value for value in vars(_state).values() if isinstance(value, type) and issubclass(value, Exception)),
    RuntimeError,
    ValueError,
)
"""Its own classes have no base in common; its Python layer uses built-in ones."""
