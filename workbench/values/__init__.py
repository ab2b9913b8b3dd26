"""What the rooms above pass to each other: candidates, results, settings, errors, and arithmetic on them.

Nothing here knows a vendor, opens a model or starts work; `documents` reads and writes texts, `system` touches the
operating system.
"""
