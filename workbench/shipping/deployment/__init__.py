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

Each is a template under `templates/` that `Facts` are put into. The container is built in a folder with `bundle/` and
`wheels/` side by side, so that any Docker version builds it and the bundle itself stays as it was written. The image
holds both: what runs is what was verified.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import Manifest
from workbench.bundle.requirements import read_lock, requirements, serving_pins
from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.facts import DIGEST_HINT, DeploymentSettings, Facts, facts_of
from workbench.targets.description import DeploymentFacts
from workbench.values.documents.templates import rendered

__all__ = ["DeploymentSettings", "deployment_files", "unpinned"]

PORT = 8000
GRACE_S = 30
"""How long the service finishes what it accepted after SIGTERM; whoever stops it must wait longer."""
_SERVICE_ID = 10001
"""User and group of the service in the image: no account of any host, and not root."""
_TRUSTED = "/etc/workbench/trusted"
"""Where a service finds whose signatures count, in the file `keys`."""
_HOME = "/opt/workbench"
_TEMPLATES = Path(__file__).with_name("templates")
_FILES = (
    *("README.md", "Dockerfile", "compose.yaml", "kubernetes.yaml", "ingress.yaml", "autoscaler.yaml"),
    *("prometheus.yml", "alerts.yml"),
)


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
    values = _values(facts)
    return {
        **{name: rendered(_TEMPLATES / f"{name}.j2", **values) for name in _FILES},
        f"{facts.slug}.service": rendered(_TEMPLATES / "unit.service.j2", **values),
        "requirements-serve.txt": requirements(found, lock),
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


def _values(facts: Facts) -> dict[str, Any]:
    """What the templates name."""
    target, devices = facts.of_target, facts.of_target.devices
    ready = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health/ready', timeout=4)"
    command = [target.python, *_serve_arguments("/srv/bundle", "0.0.0.0")]
    bundle, python = f"{_HOME}/bundles/{facts.slug}", f"{_HOME}/venv/bin/python"
    start = " ".join((python, *_serve_arguments(bundle, "127.0.0.1")))
    if target.before_serving:
        command = ["/bin/bash", "-c", serving_shell(target, "/srv/bundle", host="0.0.0.0"), "serve"]
        # systemd expands $ and % in ExecStart itself
        shell = serving_shell(target, bundle, host="127.0.0.1", python=python).replace("$", "$$")
        start = f"/bin/bash -c '{shell}' serve"
    return {
        "facts": facts,
        "target": target,
        "devices": devices,
        "card": () if devices is None else devices.resource,
        "slug": facts.slug,
        "header": facts.header,
        "group": _SERVICE_ID if devices is None else f"${{{devices.group_argument}}}",
        "hashes": " --require-hashes" if facts.hashed else "",
        "health": [target.python, "-c", ready],
        "command": command,
        "start": start,
        "home": _HOME,
        "port": PORT,
        "service_id": _SERVICE_ID,
        "grace_s": GRACE_S,
        "stop_s": GRACE_S + 15,
        "trusted_folder": _TRUSTED,
        "trusted_keys": f"{_TRUSTED}/keys",
        "trusted_variable": TRUSTED_VARIABLE,
        "digest_hint": DIGEST_HINT,
    }


def _serve_arguments(bundle: str, host: str) -> list[str]:
    """Arguments of Python that serve a bundle with its own settings."""
    return ["-m", "workbench.serve", bundle, "--host", host, "--port", str(PORT), "--docs", "off"]


def serving_shell(of_target: DeploymentFacts, bundle: str, *, host: str, python: str | None = None) -> str:
    """A line of bash that sets the vendor's environment and becomes the service, so that signals reach it."""
    start = f'exec {python or of_target.python} {" ".join(_serve_arguments(bundle, host))} "$@"'
    return "; ".join((*of_target.before_serving, start))


_PANELS = _TEMPLATES / "dashboard.toml"
_SELECT, _WINDOW = '{job=~"$job", instance=~"$instance"}', "[$__rate_interval]"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 8, 8


def grafana_dashboard(facts: Facts) -> str:
    """JSON to import into Grafana 10 or newer; it asks for a Prometheus data source and shows every service in it."""
    dashboard = {
        "title": f"Workbench service {facts.slug}",
        "uid": f"workbench-{facts.candidate}",
        "description": f"Written by workbench {facts.workbench} with candidate {facts.candidate}"
        + (". EMULATED: made without a device." if facts.emulated else "."),
        "tags": ["workbench"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _label_variable("job", "workbench_requests_received_total"),
                _label_variable("instance", 'workbench_requests_received_total{job=~"$job"}'),
            ]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(), 1)],
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _label_variable(label: str, series: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({series}, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    """The first over the whole width, the others three in a row."""
    yield {
        "gridPos": {"x": 0, "y": 0, "w": 3 * _WIDTH, "h": 5},
        "type": "table",
        "title": "What is served (emulated = true: figures of no device)",
        "datasource": _SOURCE,
        "targets": [_target("A", f"workbench_bundle_info{_SELECT}") | {"format": "table", "instant": True}],
        "transformations": [
            {
                "id": "organize",
                "options": {"excludeByName": dict.fromkeys(("Time", "Value", "__name__", "job"), True)},
            }
        ],
    }
    for number, panel in enumerate(tomllib.loads(_PANELS.read_text(encoding="utf-8"))["panels"]):
        row, column = divmod(number, 3)
        stacked = panel.get("stacked", False)
        custom = {"stacking": {"mode": "normal" if stacked else "none"}, "fillOpacity": 30 if stacked else 5}
        yield {
            "gridPos": {"x": column * _WIDTH, "y": 5 + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "type": "timeseries",
            "title": panel["title"],
            "datasource": _SOURCE,
            "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0, "custom": custom}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [
                _target(chr(ord("A") + place), query) | {"legendFormat": legend}
                for place, (legend, query) in enumerate(_queries(panel))
            ],
        }


def _target(ref: str, query: str) -> dict[str, Any]:
    return {"refId": ref, "datasource": _SOURCE, "expr": query.replace("$at", _SELECT).replace("$over", _WINDOW)}


def _queries(panel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(legend, PromQL) of each line."""
    yield from panel.get("lines", ())
    percentiles = panel.get("percentiles", {"at": ()})
    for percent in percentiles["at"]:
        buckets = f"sum by (le) (rate({percentiles['of']}_bucket$at$over))"
        yield f"P{percent}", f"histogram_quantile({percent / 100}, {buckets})"
