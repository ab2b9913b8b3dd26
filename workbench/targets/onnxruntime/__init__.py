"""The target ONNX Runtime: its compiler with our rewrites of the graph, and its session.

Nothing outside of this package imports its modules; `targets` finds it by name.
"""
