"""The sweep: what is asked next, the pipeline of stages, retries, and the processes that evaluate.

How a figure is measured is a matter of `evaluation`.
"""
