"""ONNX graphs: read and bounded, their quantizable layers, groups and flow, and the export from PyTorch.

Nothing here computes a scale or knows who will run the graph.
"""
