"""A sweep's work on a Ray cluster: an actor for each card and each compile, and nothing large between them.

    settings   what the user says of the cluster (`--cluster`, a file)
    connection the driver's connection, and who notices that the head is gone
    nodes      what the cluster has, and what a sweep needs of it
    host       on a node: one card or none, and the process that works there
    cards      the cards that this sweep holds, and the process of each, seen from the driver
    workers    what the sweep sees of it all

The journal stays with the driver. Only JSON travels through Ray; files lie in the store.
"""

from workbench.search.executors.ray.nodes import Overview, overview_of
from workbench.search.executors.ray.settings import ClusterSettings, cluster_settings
from workbench.search.executors.ray.workers import cluster_workers

__all__ = ["ClusterSettings", "Overview", "cluster_settings", "cluster_workers", "overview_of"]
