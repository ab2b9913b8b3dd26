"""The emulated amct_onnx: the documented functions of AMCT for ONNX (amct.md §1), over the workbench's own arithmetic.

    create_quant_config ─► quantize_model ─► batch_num forwards with AMCT_SO ─► save_model

Configurations, records, deploy and fake-quant models are those of `workbench.quantization`, which is proved against
files that AMCT wrote. What is not the vendor's: no compiled operator library (session.py says how data is seen), no
fixed versions of onnx and onnxruntime, and models that name this emulator as their producer.
"""

import os

from workbench.cann_emulator.amct_onnx.accuracy_search import accuracy_based_auto_calibration
from workbench.cann_emulator.amct_onnx.configuration import create_quant_config
from workbench.cann_emulator.amct_onnx.convert_model import convert_qat_model
from workbench.cann_emulator.amct_onnx.quantize import quantize_model, quantize_preprocess, save_model
from workbench.cann_emulator.amct_onnx.session import AMCT_SO
from workbench.cann_emulator.revision import emulator

__version__ = os.environ.get("CANN_EMULATOR_VERSION") or "8.5.0"
"""The release it stands for; what the vendor's wheel says here is not known [inferred]."""
EMULATOR = emulator()
"""Says that this is no AMCT; the vendor's module has no such name."""

__all__ = [
    "AMCT_SO",
    "EMULATOR",
    "accuracy_based_auto_calibration",
    "convert_qat_model",
    "create_quant_config",
    "quantize_model",
    "quantize_preprocess",
    "save_model",
]
