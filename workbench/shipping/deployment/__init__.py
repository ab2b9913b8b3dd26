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

Each is a template under `templates/` that facts of the manifest are put into. The container is built in a folder with
`bundle/` and `wheels/` side by side, so that any Docker version builds it and the bundle itself stays as it was
written. The image holds both: what runs is what was verified.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import Manifest
from workbench.bundle.requirements import MAKE_LOCK, Lock, read_lock, requirements, serving_pins
from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.targets import described
from workbench.targets.description import DeploymentFacts
from workbench.values.documents.templates import rendered
from workbench.values.errors import ConfigError

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
    *("prometheus.yml", "alerts.yml", "grafana-dashboard.json"),
)
_PROCESS_MB = 250
"""Assumed of one Python process with the serving libraries, before the model."""
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]{0,250}@sha256:[0-9a-f]{64}", re.ASCII)
_WORDS_OF_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_DIGEST_HINT = "`docker buildx imagetools inspect NAME` tells it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """What whoever exports decides about the files, beside what the manifest says.

    Attributes:
        signed: the bundle will be, so that the service asks for a trusted signature.
        lock: sums of the wheels that serving installs; None for those that the workbench ships.
        base_image: that the Dockerfile starts from, with its digest; '' for the public one by its tag, whose digest
            nobody can know here.
    """

    signed: bool = False
    lock: Lock | None = None
    base_image: str = ""

    def __post_init__(self) -> None:
        if self.base_image and not _IMAGE.fullmatch(self.base_image):
            raise ConfigError(
                f"{self.base_image[:200]!r} names no image by its digest, so it may be another one tomorrow.",
                key="--base-image",
                hint=f"Write NAME[:TAG]@sha256:DIGEST; {_DIGEST_HINT}.",
            )


def deployment_files(manifest: Manifest, settings: DeploymentSettings | None = None) -> dict[str, str]:
    """Name → text, to be put under deploy/ of the bundle.

    The same manifest gives the same files in the same Python environment: versions of packages that the manifest does
    not name are those installed here.

    Args:
        settings: `DeploymentSettings()` where it is not given.

    Raises:
        ConfigError: the sums of wheels cannot be read.
        ToolchainError: a package that serving needs is not installed here, so its version is unknown.
    """
    settings = settings or DeploymentSettings()
    lock = settings.lock or read_lock()
    found = serving_pins(manifest)
    values = _values(manifest, settings, hashed=not lock.missing(found))
    return {
        **{name: rendered(_TEMPLATES / f"{name}.j2", **values) for name in _FILES},
        f"{values['slug']}.service": rendered(_TEMPLATES / "unit.service.j2", **values),
        "requirements-serve.txt": requirements(found, lock),
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
        found.append(f"requirements-serve.txt has no hashes: {lock.file} lacks {', '.join(missing)}. {MAKE_LOCK}")
    if not settings.base_image:
        found.append(
            f"the Dockerfile's base image has no digest, so its tag may mean another image tomorrow: {_DIGEST_HINT}, "
            "then export with --base-image NAME@sha256:…"
        )
    return found


def _values(manifest: Manifest, settings: DeploymentSettings, *, hashed: bool) -> dict[str, Any]:
    """What the templates name; strings of the user are reduced to characters that no format gives a meaning."""
    toolchain = manifest.artifact.toolchain
    target = described(manifest.artifact.target).deployment(toolchain)
    devices = target.devices
    slug, candidate = slug_of(manifest.name, manifest.candidate_id), manifest.candidate_id[:12]
    header = f"# {slug}, candidate {candidate}, target {manifest.artifact.target}; written by workbench "
    header += f"{manifest.workbench}.\n"
    if toolchain.emulated:
        header += "# EMULATED: this bundle was made without a device. For rehearsals only.\n"
    ready = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health/ready', timeout=4)"
    command = [target.python, *_serve_arguments("/srv/bundle", "0.0.0.0")]
    bundle, python = f"{_HOME}/bundles/{slug}", f"{_HOME}/venv/bin/python"
    start = " ".join((python, *_serve_arguments(bundle, "127.0.0.1")))
    if target.before_serving:
        command = ["/bin/bash", "-c", serving_shell(target, "/srv/bundle", host="0.0.0.0"), "serve"]
        # systemd expands $ and % in ExecStart itself
        shell = serving_shell(target, bundle, host="127.0.0.1", python=python).replace("$", "$$")
        start = f"/bin/bash -c '{shell}' serve"
    threads = manifest.candidate.serving.intra_op_threads if target.worker_threads is None else target.worker_threads
    memory_mb, memory_origin = _memory(manifest, target)
    p99_ms, p99_origin = _p99(manifest)
    return {
        "manifest": manifest,
        "target": target,
        "devices": devices,
        "device": re.sub(r"[^ -~]", "?", toolchain.device),
        "log_folder": "" if devices is None else f"{devices.log_root}/{slug}",
        "slug": slug,
        "candidate": candidate,
        "wheel": f"int8_workbench-{manifest.workbench}-py3-none-any.whl",
        "header": header,
        "threads": threads,
        "memory_mb": memory_mb,
        "memory_origin": memory_origin,
        "p99_ms": p99_ms,
        "p99_origin": p99_origin,
        "settings": settings,
        "group": _SERVICE_ID if devices is None else f"${{{devices.group_argument}}}",
        "hashed": hashed,
        "hashes": " --require-hashes" if hashed else "",
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
        "digest_hint": _DIGEST_HINT,
        "select": '{job=~"$job", instance=~"$instance"}',
        "panels": [
            {**panel, "queries": [*_queries(panel)]}
            for panel in tomllib.loads((_TEMPLATES / "dashboard.toml").read_text(encoding="utf-8"))["panels"]
        ],
    }


def slug_of(name: str, candidate_id: str) -> str:
    """A DNS label for the bundle, at most 46 characters: 'Loan Intent (v2)' gives 'loan-intent-v2', '贷款' 'model-' and
    the candidate."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    if slug and slug[0].isalpha() and slug not in _WORDS_OF_YAML:
        return slug
    return f"model-{slug or candidate_id[:12]}"


def _p99(manifest: Manifest) -> tuple[float | None, str]:
    """(of the service with these settings, under what load and how well it is known); None where there was none."""
    services = [e.measurement.service for e in manifest.evaluations if e.measurement.service is not None]
    figures = (services[-1].confirmed or services[-1].best) if services else None
    if figures is None:
        return None, ""
    how = "modelled" if figures.clock == "modelled" else figures.kind
    return figures.p99_ms.value, f"{how} under {figures.load}"


def _memory(manifest: Manifest, target: DeploymentFacts) -> tuple[int, str]:
    """(MB of the whole service on the host, where the figure is from)."""
    peaks = [e.measurement.peak_memory_bytes for e in manifest.evaluations]
    measured = max((peak for peak in peaks if peak is not None), default=None)
    origin = f"assumed: {_PROCESS_MB} MB a process and {{}}; measure it"
    if target.worker_mb is not None:
        each, origin = target.worker_mb, origin.format(f"{target.worker_mb} MB a worker for {target.worker_mb_for}")
    elif measured is None:
        each = manifest.artifact.size_bytes * 3 // 1_000_000
        origin = origin.format("three times the model's files a worker")
    else:
        each = measured // 1_000_000 + 1
        origin = f"{each} MB measured for loading and running the model, a worker; {_PROCESS_MB} MB assumed a process"
    return _PROCESS_MB + manifest.service.workers * (_PROCESS_MB + each), origin


def _serve_arguments(bundle: str, host: str) -> list[str]:
    """Arguments of Python that serve a bundle with its own settings."""
    return ["-m", "workbench.serve", bundle, "--host", host, "--port", str(PORT)]


def serving_shell(of_target: DeploymentFacts, bundle: str, *, host: str, python: str | None = None) -> str:
    """A line of bash that sets the vendor's environment and becomes the service, so that signals reach it."""
    start = f'exec {python or of_target.python} {" ".join(_serve_arguments(bundle, host))} "$@"'
    return "; ".join((*of_target.before_serving, start))


def _queries(panel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(legend, PromQL) of each line."""
    yield from panel.get("lines", ())
    percentiles = panel.get("percentiles", {"at": ()})
    for percent in percentiles["at"]:
        buckets = f"sum by (le) (rate({percentiles['of']}_bucket$at$over))"
        yield f"P{percent}", f"histogram_quantile({percent / 100}, {buckets})"
