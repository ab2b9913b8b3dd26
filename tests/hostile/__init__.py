"""Hostile files of every format that the product reads: seeded, so that a finding has a number and comes back."""
