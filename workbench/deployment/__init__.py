"""Files that take a bundle to production: container, service unit, Kubernetes, Prometheus, Grafana.

    README.md                what each file is for, and the commands
    Dockerfile               CPU, or CANN for an Ascend bundle
    compose.yaml             the container as it is run on one machine
    requirements-serve.txt   exactly what serving imports, and nothing of searching
    NAME.service             systemd, without a container
    kubernetes.yaml          Deployment and Service
    prometheus.yml           what to scrape
    grafana-dashboard.json   the metrics of `workbench.serve.metrics`

They are examples to adapt: nobody has run them on the machine they will run on. What is assumed there and known from
public documents only says so in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.deployment.container import compose, dockerfile
from workbench.deployment.facts import Facts, facts_of
from workbench.deployment.guide import guide
from workbench.deployment.kubernetes import kubernetes
from workbench.deployment.monitoring import grafana_dashboard, prometheus
from workbench.deployment.requirements import requirements
from workbench.deployment.unit import systemd_unit

if TYPE_CHECKING:  # write_bundle imports this package, so at run time it must not import bundle
    from workbench.bundle.manifest import Manifest

__all__ = ["deployment_files"]


def deployment_files(manifest: Manifest, *, signed: bool = False) -> dict[str, str]:
    """Name → text, to be put under deploy/ of the bundle.

    Args:
        signed: the bundle will be, so that the service asks for a trusted signature.

    The same manifest gives the same files in the same Python environment: versions of packages that the manifest does
    not name are those installed here.

    Raises:
        ToolchainError: a package that serving needs is not installed here, so its version is unknown.
    """
    facts: Facts = facts_of(manifest, signed=signed)
    return {
        "README.md": guide(facts),
        "Dockerfile": dockerfile(facts),
        "compose.yaml": compose(facts),
        "requirements-serve.txt": requirements(facts.target, manifest.artifact.toolchain.components),
        f"{facts.slug}.service": systemd_unit(facts),
        "kubernetes.yaml": kubernetes(facts),
        "prometheus.yml": prometheus(facts),
        "grafana-dashboard.json": grafana_dashboard(facts),
    }
