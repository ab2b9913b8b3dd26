"""Where amct_onnx keeps its operator library."""
