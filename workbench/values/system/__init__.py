"""Files written whole, temporary folders, child processes, signals, and which source files a result depends on.

Nothing here knows what is stored or what a process computes.
"""
