"""AMCT_SO by its other path, which published scripts use; None there means that the library was not built."""

from workbench.cann_emulator.amct_onnx.session import AMCT_SO

__all__ = ["AMCT_SO"]
