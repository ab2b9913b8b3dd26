"""The rungs of the ladder, each a function of the climb: it measures, keeps what it measured, and may stop.

In which order they come is said by `workbench.search.ladder`, not here.
"""
