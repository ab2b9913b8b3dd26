"""Texts of ours and of others as values: YAML, JSON, canonical form, digests; every reader has bounds.

What the keys of a file mean is said by the room that reads it, not here.
"""
