"""Smoothing: outliers move into weights, by scales folded into what comes before (msmodelslim.md §5, §6).

Every method is a function from what was seen of a group's input, and the group's weights, to one scale a channel. All
of it is computed in the model's dtype, step by step. Nothing here runs a model.
"""
