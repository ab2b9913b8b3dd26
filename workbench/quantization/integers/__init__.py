"""What integer kernels compute, step by step, and an interpreter of deploy models.

It proves lowerings; no product result is computed by it.
"""
