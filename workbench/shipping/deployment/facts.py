"""What the deployment files take from a manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.bundle.manifest import Manifest
from workbench.bundle.requirements import Lock
from workbench.targets import described
from workbench.targets.description import DeploymentFacts
from workbench.values.errors import ConfigError

PROCESS_MB = 250
"""Assumed of one Python process with the serving libraries, before the model."""
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]{0,250}@sha256:[0-9a-f]{64}", re.ASCII)
_WORDS_OF_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
DIGEST_HINT = "`docker buildx imagetools inspect NAME` tells it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """What whoever exports decides about the files, beside what the manifest says.

    Attributes:
        signed: the bundle will be, so that the service asks for a trusted signature.
        lock: sums of the wheels that serving installs; None for the table that the workbench ships.
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
                hint=f"Write NAME[:TAG]@sha256:DIGEST; {DIGEST_HINT}.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One service, in plain words that fit a file name, a label and a comment.

    Attributes:
        slug: the bundle's name in lower-case ASCII letters, digits and dashes, at most 40 characters.
        wheel: file name of the workbench's wheel.
        of_target: what the target says that production must give it.
        threads: that one worker keeps busy on the host.
        memory_mb: of the whole service on the host, `memory_origin` says where the figure is from.
        max_batch: rows of the largest batch.
        p99_ms: of the service with these settings, `p99_origin` says under what load and how well it is known; None
            where the search asked for no service.
        base_image: '' where no digest was given.
        hashed: requirements-serve.txt has the sums of all wheels.
        signed: the service must find a file of trusted keys at a place that is no part of image or bundle.
    """

    slug: str
    candidate: str
    workbench: str
    target: str
    device: str
    of_target: DeploymentFacts
    emulated: bool
    workers: int
    threads: int
    memory_mb: int
    memory_origin: str
    max_batch: int
    p99_ms: float | None
    p99_origin: str
    base_image: str
    hashed: bool
    signed: bool

    @property
    def log_folder(self) -> str:
        """Of the vendor's logs; '' where there are none."""
        devices = self.of_target.devices
        return f"{devices.log_root}/{self.slug}" if devices is not None else ""

    @property
    def wheel(self) -> str:
        return f"int8_workbench-{self.workbench}-py3-none-any.whl"

    @property
    def header(self) -> str:
        """Comment lines that open every file."""
        lines = [
            f"# {self.slug}, candidate {self.candidate}, target {self.target}; written by workbench {self.workbench}."
        ]
        if self.emulated:
            lines.append("# EMULATED: this bundle was made without a device. For rehearsals only.")
        return "\n".join(lines) + "\n"


def facts_of(manifest: Manifest, settings: DeploymentSettings | None = None, *, hashed: bool = False) -> Facts:
    """Deterministic; strings of the user are reduced to characters that no format gives a meaning."""
    settings = settings or DeploymentSettings()
    toolchain, serving = manifest.artifact.toolchain, manifest.candidate.serving
    of_target = described(manifest.artifact.target).deployment(toolchain)
    workers = manifest.service.workers
    p99_ms, p99_origin = _p99(manifest)
    memory_mb, origin = _memory(manifest, of_target, workers)
    return Facts(
        slug=slug_of(manifest.name, manifest.candidate_id),
        candidate=manifest.candidate_id[:12],
        workbench=manifest.workbench,
        target=manifest.artifact.target,
        device=re.sub(r"[^ -~]", "?", toolchain.device),
        of_target=of_target,
        emulated=toolchain.emulated,
        workers=workers,
        threads=serving.intra_op_threads if of_target.worker_threads is None else of_target.worker_threads,
        memory_mb=memory_mb,
        memory_origin=origin,
        max_batch=manifest.service.max_batch_size,
        p99_ms=p99_ms,
        p99_origin=p99_origin,
        base_image=settings.base_image,
        hashed=hashed,
        signed=settings.signed,
    )


def _p99(manifest: Manifest) -> tuple[float | None, str]:
    services = [e.measurement.service for e in manifest.evaluations if e.measurement.service is not None]
    figures = (services[-1].confirmed or services[-1].best) if services else None
    if figures is None:
        return None, ""
    how = "modelled" if figures.clock == "modelled" else figures.kind
    return figures.p99_ms.value, f"{how} under {figures.load}"


def slug_of(name: str, candidate_id: str) -> str:
    """A DNS label for the bundle: 'Loan Intent (v2)' gives 'loan-intent-v2', '贷款' 'model-' and the candidate."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    if slug and slug[0].isalpha() and slug not in _WORDS_OF_YAML:
        return slug
    return f"model-{slug or candidate_id[:12]}"


def _memory(manifest: Manifest, of_target: DeploymentFacts, workers: int) -> tuple[int, str]:
    if (assumed := of_target.worker_mb) is not None:
        total = PROCESS_MB + workers * (PROCESS_MB + assumed)
        what = f"{assumed} MB a worker for {of_target.worker_mb_for}"
        return total, f"assumed: {PROCESS_MB} MB a process and {what}; measure it"
    peaks = [e.measurement.peak_memory_bytes for e in manifest.evaluations]
    measured = max((peak for peak in peaks if peak is not None), default=None)
    if measured is None:
        total = PROCESS_MB + workers * (PROCESS_MB + manifest.artifact.size_bytes * 3 // 1_000_000)
        return total, f"assumed: {PROCESS_MB} MB a process and three times the model's files a worker; measure it"
    each = measured // 1_000_000 + 1
    total = PROCESS_MB + workers * (PROCESS_MB + each)
    return total, f"{each} MB measured for loading and running the model, a worker; {PROCESS_MB} MB assumed a process"
