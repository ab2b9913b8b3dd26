"""Files that take a bundle to production: container, service unit, Kubernetes, Prometheus, Grafana.

    README.md                what each file is for, and the commands
    Dockerfile               for the processors of the host, or on the image that the target names
    compose.yaml             the container as it is run on one machine
    requirements-serve.txt   exactly what serving imports, and nothing of searching
    NAME.service             systemd, without a container
    kubernetes.yaml          Deployment and Service
    ingress.yaml             the way in from outside, with TLS
    autoscaler.yaml          more pods under more load
    prometheus.yml           what to scrape
    alerts.yml               when to call somebody
    grafana-dashboard.json   the metrics of `workbench.serve.metrics`

They are examples to adapt: nobody has run them on the machine they will run on. What is assumed there and known from
public documents only says so in the file.
"""

from __future__ import annotations

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.lock import read_lock
from workbench.bundle.manifest import Manifest
from workbench.bundle.requirements import requirements, serving_pins
from workbench.shipping.deployment.alerts import alerts
from workbench.shipping.deployment.container import compose, dockerfile
from workbench.shipping.deployment.facts import DIGEST_HINT, DeploymentSettings, Facts, facts_of
from workbench.shipping.deployment.guide import guide
from workbench.shipping.deployment.kubernetes import kubernetes
from workbench.shipping.deployment.monitoring import grafana_dashboard, prometheus
from workbench.shipping.deployment.outside import autoscaler, ingress
from workbench.shipping.deployment.unit import systemd_unit

__all__ = ["DeploymentSettings", "deployment_files", "unpinned"]


def deployment_files(manifest: Manifest, settings: DeploymentSettings | None = None) -> dict[str, str]:
    """Name → text, to be put under deploy/ of the bundle.

    The same manifest gives the same files in the same Python environment: versions of packages that the manifest does
    not name are those installed here.

    Args:
        settings: `DeploymentSettings()` where it is not given.

    Raises:
        ConfigError: the table of wheels cannot be read.
        ToolchainError: a package that serving needs is not installed here, so its version is unknown.
    """
    settings = settings or DeploymentSettings()
    lock = settings.lock or read_lock()
    found = serving_pins(manifest)
    facts: Facts = facts_of(manifest, settings, hashed=not lock.missing(found))
    return {
        "README.md": guide(facts),
        "Dockerfile": dockerfile(facts),
        "compose.yaml": compose(facts),
        "requirements-serve.txt": requirements(found, lock),
        f"{facts.slug}.service": systemd_unit(facts),
        "kubernetes.yaml": kubernetes(facts),
        "ingress.yaml": ingress(facts),
        "autoscaler.yaml": autoscaler(facts),
        "prometheus.yml": prometheus(facts),
        "alerts.yml": alerts(facts),
        "grafana-dashboard.json": grafana_dashboard(facts),
    }


def unpinned(manifest: Manifest, settings: DeploymentSettings) -> list[str]:
    """What an image made with the files is free to exchange without anybody noticing, in sentences.

    Raises:
        ToolchainError: a package that serving needs is not installed here.
    """
    if manifest.task == LANGUAGE:  # no image of ours
        return []
    found = []
    lock = settings.lock or read_lock()
    if missing := lock.missing(serving_pins(manifest)):
        found.append(
            f"requirements-serve.txt has no hashes: {lock.file} lacks {', '.join(missing)}. `workbench lock --to FILE` "
            "asks pip's index for them; then export with --lock FILE"
        )
    if not settings.base_image:
        found.append(
            f"the Dockerfile's base image has no digest, so its tag may mean another image tomorrow: {DIGEST_HINT}, "
            "then export with --base-image NAME@sha256:…"
        )
    return found
