"""The key that a candidate's answers are lent under: what decides them, and what it answered to the first samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.evaluation.bench import Bench
from workbench.targets.classes import numerics_class
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.system.source_closure import closure_digest


def accuracy_key(
    candidate: Candidate,
    bench: Bench,
    artifact: Artifact,
    directory: Path,
    *,
    witness: str,
    scored: Mapping[str, object],
) -> str:
    """Of the outcomes over a split.

    Args:
        witness: digest of the outputs for the smoke samples. So a loan is bit for bit right there, whatever a target
            claims of its classes.
        scored: how and on what they are scored (`AccuracyPass.scored`).
    """
    target = bench.target(candidate)
    key = {
        "artifact": [[file.file, file.sha256] for file in artifact.files],
        "toolchain": artifact.toolchain,
        "opened_with": [candidate.compile, candidate.precision, candidate.serving, candidate.quantization.scheme],
        "code": closure_digest(type(target).__module__, "workbench.targets.classes", alone=(__name__,)),
    }
    name = bench.store.get_json("numerics_class", key)
    if name is None:
        name = numerics_class(target, artifact, directory, candidate)
        bench.store.put_json("numerics_class", key, name)
    return digest({"of": "accuracy", "class": name, "witness": witness, "scored": scored})
