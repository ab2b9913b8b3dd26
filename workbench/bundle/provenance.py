"""Where a bundle comes from: in the words of a registry, and as an in-toto Statement v1 with SLSA's provenance v1 as
its predicate.

The statement says what the exporting machine says of itself: nobody but the signature vouches for it, and what SLSA
calls a build level is not claimed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import workbench
from workbench.bundle.manifest import README, FileSum, Manifest
from workbench.bundle.opened import Bundle
from workbench.values.documents.canonical import canonical_json, digest, file_digest
from workbench.values.metrics import metrics
from workbench.values.setting_groups import describe


def provenance(bundle: Bundle) -> dict[str, str]:
    """Tags of a registered version: what it is, what it was made from, with and where. Few, since MLflow lists all.

    `data` is JSON, split → digest; `components` is name and version of everything in the toolchain.
    """
    manifest = bundle.manifest
    toolchain = manifest.artifact.toolchain
    return {
        "figures": _figures(manifest),
        "emulated": "true" if toolchain.emulated else "false",
        "service": str(manifest.service),
        "target": toolchain.target,
        "device": toolchain.device,
        "candidate": manifest.candidate_id,
        "model_sha256": manifest.model.sha256,
        **({} if manifest.model.origin is None else {"source_model_sha256": manifest.model.origin.sha256}),
        "data": canonical_json(manifest.datasets),
        "toolchain": toolchain.fingerprint,
        "components": ", ".join(f"{name} {version}" for name, version in sorted(toolchain.components.items())),
        "workbench": manifest.workbench,
        "size_bytes": str(sum(s.size_bytes for s in manifest.files.values())),
        "created_at": manifest.created_at,
        "source": str(bundle.directory.resolve()),
    }


def description(bundle: Bundle) -> str:
    """Markdown: a headline, which is all that a list of versions shows, then the README's settings and figures."""
    manifest = bundle.manifest
    text = bundle.read(README).decode("utf-8")
    first, *parts = text.split("\n## ")
    emulated = "EMULATED. " if manifest.artifact.toolchain.emulated else ""
    headline = f"{emulated}{describe(manifest.candidate)}. {_figures(manifest)}"
    wanted = [part for part in parts if part.startswith(("Acceptance figures", "Serve it"))]
    return "\n## ".join([headline + "\n" + first.removeprefix(f"# {manifest.name}\n"), *wanted])


def _figures(manifest: Manifest) -> str:
    """Of the confirmation if there is one, else of the search; in words."""
    if not manifest.evaluations:
        return "not measured"
    evaluation = manifest.evaluations[-1]
    accuracy = evaluation.measurement.accuracy
    known = accuracy is None or accuracy.primary in ("accuracy", "entity_f1")
    words = {
        "accuracy": f"{'accuracy' if accuracy is None or known else accuracy.primary} {{:.4f}}",
        "accuracy_drop_pp": "{:.2f} pp below float",
        "accuracy_drop": f"{{:.2f}} {'' if accuracy is None else accuracy.unit} worse than float",
        "latency_p50_ms": "P50 {:.3g} ms",
        "latency_p99_ms": "P99 {:.3g} ms",
        "speedup": "{:.2f} times as fast as float",
    }
    numbers = metrics(evaluation)
    found = [text.format(numbers[name]) for name, text in words.items() if name in numbers]
    return f"On {evaluation.split}: {', '.join(found)}"


STATEMENT = "provenance.intoto.json"
STATEMENT_TYPE, PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE, BUILDER = "urn:int8-workbench:export:v1", "urn:int8-workbench:local-export"
_DISTRIBUTION = "int8-workbench"
_GIT_TIMEOUT_S = 20.0
_BYPRODUCTS = ("record.json", "outcomes/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the user asked for, with digests.

    Attributes:
        experiment_sha256, space_sha256: of the files' bytes.
        identity: of the experiment: what its numbers mean, whatever the files' comments say.
    """

    experiment: str
    experiment_sha256: str
    identity: str
    space: str
    space_sha256: str


def statement(manifest: Manifest, files: Mapping[str, FileSum], origin: Origin | None) -> dict[str, Any]:
    """The document.

    Args:
        files: of the bundle so far; the document itself, the README and the manifest come later.
        origin: None where there was no experiment.
    """
    byproducts = [name for name in sorted(files) if name.startswith(_BYPRODUCTS)]
    products = [name for name in sorted(files) if name not in byproducts]
    asked: dict[str, Any] = {"name": manifest.name, "candidate": manifest.candidate.to_json()}
    if origin is not None:
        asked |= {"experiment": origin.experiment, "experiment_identity": origin.identity}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [_resource(name, sha256=files[name].sha256) for name in products],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asked,
                "internalParameters": {
                    "candidate_id": manifest.candidate_id,
                    "toolchain": dict(manifest.artifact.toolchain.components),
                    "device": manifest.artifact.toolchain.device,
                    "emulated": manifest.artifact.toolchain.emulated,
                },
                "resolvedDependencies": [*_inputs(manifest, origin), *_workbench()],
            },
            "runDetails": {
                "builder": {
                    "id": BUILDER,
                    "version": {_DISTRIBUTION: manifest.workbench, "python": platform.python_version()},
                },
                "metadata": {"finishedOn": datetime.now(UTC).isoformat(timespec="seconds")},
                "byproducts": [_resource(name, sha256=files[name].sha256) for name in byproducts],
            },
        },
    }


def _inputs(manifest: Manifest, origin: Origin | None) -> list[dict[str, Any]]:
    """Digests that are no sha256 of a file's bytes have names of their own, as in-toto asks."""
    found = [_resource(manifest.model.file, modelSha256=manifest.model.sha256)]
    if manifest.model.origin is not None:
        prepared = manifest.model.origin
        found.append(_resource(prepared.path.name, sourceModelSha256=prepared.sha256))
    found += [_resource(split, datasetSha256=content) for split, content in sorted(manifest.datasets.items())]
    if origin is not None:
        found.append(_resource(origin.experiment, sha256=origin.experiment_sha256))
        found.append(_resource(origin.space, sha256=origin.space_sha256))
    return found


def _resource(name: str, **digests: str) -> dict[str, Any]:
    return {"name": name, "digest": digests}


def _workbench() -> list[dict[str, Any]]:
    """The sources that ran, by their digest; and their commit, where it is known and they are unchanged."""
    found = _resource(_DISTRIBUTION, sourceSha256=_sources())
    commit = _commit()
    if commit is not None:
        found["digest"]["gitCommit"] = commit
    else:
        found["annotations"] = {"commit": "unknown: not run from an unchanged checkout, nor installed from one"}
    return [found]


@functools.cache
def _sources() -> str:
    """Over name and content of every module, in the order of their names."""
    root = Path(workbench.__file__).parent
    lines = [f"{file_digest(file)}  {file.relative_to(root).as_posix()}" for file in sorted(root.rglob("*.py"))]
    return digest(lines)


def _commit() -> str | None:
    root = Path(workbench.__file__).parent.parent
    if (root / ".git").exists():
        changed = _git(root, "status", "--porcelain", "--", "workbench", "pyproject.toml")
        return _git(root, "rev-parse", "--verify", "HEAD") if changed == "" else None
    try:
        origin = json.loads(importlib.metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    commit = origin.get("vcs_info", {}).get("commit_id")
    return str(commit) if commit else None


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; None where there is no git, or it does not answer."""
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
