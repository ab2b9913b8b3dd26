"""INT8 quantization and optimization workbench: from a float ONNX model to a Pareto set and a verified bundle."""

__version__ = "0.1.0"
