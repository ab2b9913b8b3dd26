"""What INT8 does to the example models, computed without the workbench: its own sessions, decoding and measures.

Nothing here imports `workbench`: that is the point. `engines` runs a file, `measures` compares two files' answers, and
`examples` knows how each example's model is fed. The inputs are the examples' own, of a split that no sweep reads.
"""
