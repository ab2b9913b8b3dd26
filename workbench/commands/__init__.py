"""The command line: one module for each group of commands, and what they share.

Commands read arguments and say results; no figure is computed here.
"""
