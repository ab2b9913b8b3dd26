"""The emulated amct_onnx: the documented calls of AMCT for ONNX (amct.md §1) as far as a calibration needs them.

    create_quant_config ─► [quantize_preprocess ─► one forward] ─► quantize_model ─► batch_num forwards ─► save_model

What is found is what `workbench.quantization` finds for the configuration, which is proved against files that AMCT
wrote. Not there: the accuracy search, the import of quantization-aware models, the command line. No compiled operator
library and no fixed versions of onnx and onnxruntime are needed.
"""

from workbench.cann_emulator.amct_onnx.quantize import (
    AMCT_SO,
    create_quant_config,
    quantize_model,
    quantize_preprocess,
    save_model,
)
from workbench.cann_emulator.revision import CANN, emulator

__version__ = CANN
"""The release it stands for; what the vendor's wheel says here is not known [inferred]."""
EMULATOR = emulator()
"""Says that this is no AMCT; the vendor's module has no such name."""

__all__ = ["AMCT_SO", "EMULATOR", "create_quant_config", "quantize_model", "quantize_preprocess", "save_model"]
