"""A sweep's work on a Ray cluster: an actor for each card and each compile, and nothing large between them.

    connection what the user says of the cluster (`--cluster`, a file), the driver's connection, and who notices that
               the head is gone
    nodes      what the cluster has, and what a sweep needs of it
    host       on a node: one card or none, and the process that works there
    cards      the cards that this sweep holds, the process of each seen from the driver, and what the sweep sees

The journal stays with the driver. Only JSON travels through Ray; files lie in the store.
"""
