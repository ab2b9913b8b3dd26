"""How a cluster stands: nodes, cards, who uses them."""

from __future__ import annotations

from workbench.search.executors.ray import Overview, cluster_settings, overview_of


def cluster_overview(cluster: str = "auto") -> Overview:
    """What a cluster has, and which sweeps use it.

    Args:
        cluster: as `sweep`.
    """
    return overview_of(cluster_settings(cluster))
