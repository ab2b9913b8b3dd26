"""What a bundle is made of, as a CycloneDX 1.6 document: model, data, packages of serving, files.

The document is a file of the bundle like any other: SHA256SUMS has its sum, and a signature covers it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import FileSum, Manifest
from workbench.bundle.requirements import Lock, serving_pins
from workbench.values.documents.canonical import digest
from workbench.values.model import TensorSpec

SBOM = "sbom.cdx.json"
SPEC_VERSION = "1.6"
_ROOT, _MODEL, _SOURCE, _TOOL = "bundle", "model", "source-model", "int8-workbench"


def sbom(manifest: Manifest, files: Mapping[str, FileSum], lock: Lock) -> dict[str, Any]:
    """The document.

    Args:
        files: of the bundle so far; the document, the README and the manifest come later.
        lock: sums of the wheels of the packages, as far as they are known.

    Raises:
        ToolchainError: a package that serving needs is not installed here.
    """
    packages = [_package(pin, lock) for pin in serving_pins(manifest)]
    data = [_data(split, found) for split, found in sorted(manifest.datasets.items())]
    tool = {"type": "application", "bom-ref": _TOOL, "name": "int8-workbench", "version": manifest.workbench}
    components = [_model(manifest, data), _source(manifest), *data, *packages, *map(_file, sorted(files.items()))]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, digest([manifest.candidate_id, manifest.created_at]))
    refs = [component["bom-ref"] for component in components]
    model_files = [f"file:{name}" for name in manifest.model_files if name in files]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": manifest.created_at,
            "tools": {"components": [tool]},
            "component": {
                "type": "application",
                "bom-ref": _ROOT,
                "name": manifest.name,
                "version": manifest.candidate_id[:12],
                "description": manifest.about or "a compiled model with what serving it needs",
            },
        },
        "components": components,
        "dependencies": [
            {"ref": _ROOT, "dependsOn": sorted(ref for ref in refs if ref != _SOURCE)},
            {"ref": _MODEL, "dependsOn": sorted([_SOURCE, *model_files, *(found["bom-ref"] for found in data)])},
        ],
    }


def _model(manifest: Manifest, data: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The compiled model; its hash where it is one file, else those of its files stand beside it."""
    artifact = manifest.artifact
    found: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": manifest.name,
        "version": manifest.candidate_id[:12],
        "modelCard": {
            "modelParameters": {
                "task": manifest.task,
                "datasets": [{"ref": component["bom-ref"]} for component in data],
                "inputs": _formats(manifest.model.inputs),
                "outputs": _formats(manifest.model.outputs),
            }
        },
        "properties": _properties(
            {
                "candidate": manifest.candidate_id,
                "target": artifact.target,
                "device": artifact.toolchain.device,
                "emulated": str(artifact.toolchain.emulated).lower(),
                **{f"toolchain:{name}": version for name, version in sorted(artifact.toolchain.components.items())},
            }
        ),
    }
    if len(artifact.files) == 1:
        found["hashes"] = _sha256(artifact.files[0].sha256)
    return found


def _formats(specs: Sequence[TensorSpec]) -> list[dict[str, str]]:
    shapes = [", ".join("?" if size is None else str(size) for size in spec.shape) for spec in specs]
    return [{"format": f"{spec.name}: {spec.dtype} [{shape}]"} for spec, shape in zip(specs, shapes, strict=True)]


def _source(manifest: Manifest) -> dict[str, Any]:
    """The float model; its digest is no file's hash where it has external data, so it stands as a property."""
    language = manifest.task == LANGUAGE
    kind = "language model, a folder," if language else "ONNX model"
    said = {"sha256": manifest.model.sha256} | ({} if language else {"opset": str(manifest.model.opset)})
    return {
        "type": "machine-learning-model",
        "bom-ref": _SOURCE,
        "name": manifest.model.file,
        "scope": "excluded",
        "description": f"the float {kind} that the bundle's was made from; it is not in the bundle",
        "properties": _properties(said),
    }


def _data(split: str, found: str) -> dict[str, Any]:
    return {
        "type": "data",
        "bom-ref": f"data:{split}",
        "name": split,
        "scope": "excluded",
        "description": f"the {split} split that the model was calibrated, chosen or confirmed with; not in the bundle",
        "data": [{"type": "dataset", "name": split}],
        "properties": _properties({"digest": found}),
    }


def _package(pin: str, lock: Lock) -> dict[str, Any]:
    name, _, version = pin.partition("==")
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if wheels := lock.wheels.get(pin):
        found["externalReferences"] = [
            {"type": "distribution", "url": wheel.file, "comment": wheel.architecture, "hashes": _sha256(wheel.sha256)}
            for wheel in wheels
        ]
    return found


def _file(listed: tuple[str, FileSum]) -> dict[str, Any]:
    name, found = listed
    size = _properties({"size_bytes": str(found.size_bytes)})
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": _sha256(found.sha256),
        "properties": size,
    }


def _sha256(value: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": value}]


def _properties(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": f"workbench:{name}", "value": value} for name, value in values.items()]
