"""Modules of amct_onnx that evaluators import."""
