"""Where a bundle comes from, in the words of a registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.bundle.manifest import MANIFEST, README, Bundle
from workbench.candidate import describe
from workbench.canonical import file_digest
from workbench.results import Evaluation, metrics


def manifest_sha256(bundle: Bundle) -> str:
    """64 hex digits that name a bundle: its manifest holds the sums of all other files."""
    return file_digest(bundle.directory / MANIFEST)


def provenance(bundle: Bundle) -> dict[str, str]:
    """Tags of a registered version: what it is, what it was made from, with and where, and its headline figures."""
    manifest = bundle.manifest
    toolchain = manifest.artifact.toolchain
    tags = {
        "candidate": manifest.candidate_id,
        "settings": describe(manifest.candidate),
        "model": manifest.model.file,
        "model_sha256": manifest.model.sha256,
        **{f"data_{split}": digest for split, digest in manifest.datasets.items()},
        "target": toolchain.target,
        "device": toolchain.device,
        "toolchain": toolchain.fingerprint,
        **{f"toolchain.{name.replace(' ', '_')}": version for name, version in toolchain.components.items()},
        "emulated": "true" if toolchain.emulated else "false",
        "workbench": manifest.workbench,
        "created_at": manifest.created_at,
        "service": str(manifest.service),
        "size_bytes": str(sum(s.size_bytes for s in manifest.files.values())),
        "source": str(bundle.directory.resolve()),
    }
    return tags | _figures(manifest.evaluations)


def description(bundle: Bundle) -> str:
    """The bundle's README as far as its settings and figures: what the registry's page shows of a version."""
    text = (bundle.directory / README).read_text(encoding="utf-8")
    parts = text.split("\n## ")
    wanted = [part for part in parts[1:] if part.startswith(("Acceptance figures", "Serve it"))]
    return "\n## ".join([parts[0], *wanted])


def _figures(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    shown = ("accuracy", "accuracy_drop_pp", "latency_p50_ms", "latency_p99_ms", "speedup")
    found: Mapping[str, float] = metrics(evaluations[-1]) if evaluations else {}
    prefix = f"{evaluations[-1].split}_" if evaluations else ""
    return {f"{prefix}{name}": f"{found[name]:.6g}" for name in shown if name in found}
