"""Recorded tables of whole search spaces, and the replay of search strategies over them.

questions   what each table is of: an experiment with its space, written into a workspace
record      measures classes, composes them into a table, and measures a share whole as the proof
emulated    what the emulated 910B3 says of a candidate, without a device's memory and a program for each file
record_emulated
            the same for a device whose cost is runs of ATC; times are modelled
tables      a table: read, written, and asked
replay      strategies through the sampler's own code against a table, in seconds
"""
