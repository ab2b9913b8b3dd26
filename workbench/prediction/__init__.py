"""Services predicted from measured times: the curve over batch and length, host costs, the simulation, capacity.

Nothing here loads a service; what was measured under load is a matter of `load` and `shipping`.
"""
