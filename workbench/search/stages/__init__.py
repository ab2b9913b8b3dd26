"""The stages of the pipeline: functions of a request and what is known so far, which say what is known then.

In which order they come is said by `workbench.search.pipeline`, not here.
"""
