"""The sweep: what is asked next, the ladder of gates, retries, and the processes that evaluate.

How a figure is measured is a matter of `evaluation`.
"""
