"""What a user brings: the experiment or the pipeline, datasets, metrics.

Reading and scoring only; nothing here compiles, runs a candidate or keeps a result.
"""
