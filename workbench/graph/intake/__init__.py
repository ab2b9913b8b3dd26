"""Intake: whatever ONNX file a user brings becomes a prepared one, which everything else works on.

Each step is a pure function over a ModelProto in a module of its own; `preparation` puts them together and proves them
by running both files, `prepared` is the door, with the cache. Nothing here knows a target or a dataset's content.
"""
