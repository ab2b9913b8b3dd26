"""Models that nobody shipped: 50 ONNX files over opsets, axes, inputs, outputs and subgraphs, and what becomes of them.

`python -m benchmarks.strange` takes each through inspect, init, plan and a sweep of two candidates.
"""
