"""The INT8 engine: observe once, derive every record from the statistics, lower the record to a runnable model.

Nothing here compiles or runs on a target, or knows which candidate asks.
"""
