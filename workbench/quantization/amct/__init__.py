"""AMCT's texts: configurations, records, and the recipe that a configuration asks for.

Running AMCT itself is a matter of the Ascend target.
"""
