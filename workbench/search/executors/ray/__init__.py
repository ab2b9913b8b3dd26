"""A sweep's work on a Ray cluster: an actor for each card, tasks that compile, and nothing large between them.

    settings   what the user says of the cluster (`--cluster`, a file)
    connection the driver's connection, and who notices that the head is gone
    host       on a node: one card, and the process that evaluates on it
    remote     that process, seen from the driver
    pool       the cards of this sweep: placed, lost, quarantined, shared with other sweeps
    workers    what the sweep sees of it all
    board      what sweeps tell each other and `workbench cluster`, in the head's memory

Journal and Optuna's log stay with the driver. Only JSON travels through Ray; files lie in the store.
"""

from workbench.search.executors.ray.board import Overview, overview_of
from workbench.search.executors.ray.settings import ClusterSettings, cluster_settings
from workbench.search.executors.ray.workers import cluster_workers

__all__ = ["ClusterSettings", "Overview", "cluster_settings", "cluster_workers", "overview_of"]
