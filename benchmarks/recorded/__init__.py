"""Recorded tables of whole search spaces, and the replay of search strategies over them.

questions   what each table is of: an experiment with its space, written into a workspace
record      measures classes, composes them into a table, and measures a share whole as the proof
tables      a table: read, written, and asked
replay      strategies through the sampler's own code against a table, in seconds
"""
