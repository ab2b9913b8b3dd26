"""What a bundle is made of, as a CycloneDX 1.6 document: its model, what that was made from, packages of serving.

The document is a file of the bundle like any other: SHA256SUMS has its sum, as it has those of the other files, and a
signature covers them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import Manifest
from workbench.bundle.requirements import serving_pins
from workbench.values.documents.canonical import digest

SBOM = "sbom.cdx.json"
SPEC_VERSION = "1.6"
_ROOT, _MODEL, _SOURCE, _TOOL = "bundle", "model", "source-model", "int8-workbench"


def sbom(manifest: Manifest) -> dict[str, Any]:
    """The document.

    Raises:
        ToolchainError: a package that serving needs is not installed here.
    """
    artifact, language, version = manifest.artifact, manifest.task == LANGUAGE, manifest.candidate_id[:12]
    said = {
        "candidate": manifest.candidate_id,
        "target": artifact.target,
        "device": artifact.toolchain.device,
        "emulated": str(artifact.toolchain.emulated).lower(),
        **{f"toolchain:{name}": version for name, version in sorted(artifact.toolchain.components.items())},
    }
    model = _component("machine-learning-model", _MODEL, manifest.name, properties=_properties(said))
    if len(artifact.files) == 1:
        model["hashes"] = [{"alg": "SHA-256", "content": artifact.files[0].sha256}]
    kind = "language model, a folder," if language else "ONNX model"
    # its digest is no file's hash where it has external data, so it stands as a property
    source_said = {"sha256": manifest.model.sha256} | ({} if language else {"opset": str(manifest.model.opset)})
    source = _component(
        "machine-learning-model",
        _SOURCE,
        manifest.model.file,
        scope="excluded",
        description=f"the float {kind} that the bundle's was made from; it is not in the bundle",
        properties=_properties(source_said),
    )
    data = [
        _component(
            "data",
            f"data:{split}",
            split,
            scope="excluded",
            description=f"the {split} split that the model was calibrated, chosen or confirmed with; not in the bundle",
            properties=_properties({"digest": found}),
        )
        for split, found in sorted(manifest.datasets.items())
    ]
    packages = [_package(pin) for pin in serving_pins(manifest)]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, digest([manifest.candidate_id, manifest.created_at]))
    about = manifest.about or "a compiled model with what serving it needs"
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": manifest.created_at,
            "tools": {"components": [_component("application", _TOOL, version=manifest.workbench)]},
            "component": _component("application", _ROOT, manifest.name, version=version, description=about),
        },
        "components": [model | {"version": version}, source, *data, *packages],
        "dependencies": [
            {"ref": _ROOT, "dependsOn": [_MODEL, *(found["bom-ref"] for found in packages)]},
            {"ref": _MODEL, "dependsOn": [_SOURCE, *(found["bom-ref"] for found in data)]},
        ],
    }


def _component(kind: str, ref: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "bom-ref": ref, "name": name or ref, **more}


def _package(pin: str) -> dict[str, Any]:
    name, _, version = pin.partition("==")
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    return _component("library", purl, name, version=version, purl=purl)


def _properties(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": f"workbench:{name}", "value": value} for name, value in values.items()]
