"""ATC: its command line, the files it is given, the process, and what its output and codes mean.

Running what it compiled is a matter of `acl`.
"""
