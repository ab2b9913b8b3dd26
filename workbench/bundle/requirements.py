"""Exactly the packages that serving a bundle imports, at the versions installed here, with the sums of their wheels.

Resolved from what each installed package declares, so that the file can be installed with `--no-deps`: the image then
holds these packages and no other, whatever was published since.

What is installed does not say which wheel it came from: pip keeps no sum of it. So a file of requirements with hashes
says it, as `uv pip compile --generate-hashes` writes it from an index. The workbench ships one of the versions it was
tested with; a bundle made with others needs one of its own.

Beside them the bill of materials, a CycloneDX 1.6 document: the bundle's model, what that was made from, and these
packages. It is a file of the bundle like any other: SHA256SUMS has its sum, and a signature covers it.
"""

from __future__ import annotations

import importlib.metadata
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import Manifest
from workbench.targets import described, descriptions
from workbench.values.documents.canonical import digest
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.installed_targets import distributions_of
from workbench.values.versions import install_command

SHIPPED = Path(__file__).with_name("serving-lock.txt")
MAKE_LOCK = (
    "uv pip compile deploy/requirements-serve.txt --no-deps --generate-hashes --python-version 3.11 -o FILE asks your "
    "index for them; then export with --lock FILE"
)
_MOST_BYTES = 1 << 24
_PIN = re.compile(
    r"^([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+)|--hash=sha256:([0-9a-f]{64})(?=\s|$)", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Attributes:
    sums: 'name==version' → sha256 of each of its wheels; the name in its canonical form.
    """

    file: Path
    sums: Mapping[str, tuple[str, ...]]

    def missing(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Those of which no wheel is known."""
        return tuple(pin for pin in pins if not self.sums.get(pin))


def read_lock(file: Path = SHIPPED) -> Lock:
    """Read a file of requirements with hashes, in pip's format.

    Raises:
        ConfigError: it cannot be read, or holds no such line.
    """
    sums: dict[str, tuple[str, ...]] = {}
    pin = ""
    for named, sha256 in _PIN.findall(read_text(file, limit_bytes=_MOST_BYTES, key="--lock")):
        if named:
            name, _, version = named.partition("==")
            pin = f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
        elif pin:
            sums[pin] = (*sums.get(pin, ()), sha256)
    if not sums:
        raise ConfigError("has no requirement with a hash.", file=file, key="--lock", hint=f"{MAKE_LOCK}.")
    return Lock(file=file, sums=sums)


SERVING = (
    *("numpy", "onnx", "onnxruntime", "tokenizers", "psutil"),
    *("prometheus-client", "uvloop", "httptools", "cryptography"),
)
"""What `workbench.serve`, `preprocess`, `bundle` and every target import; onnxruntime comes in with `quantization`,
and cryptography where a signature is required."""
LEFT_OUT = {"huggingface-hub": "tokenizers declares it to download tokenizers by name; a bundle carries its own file"}
"""Declared by a package above, never imported when serving."""
OURSELVES = "int8-workbench"
"""Installed from a wheel of its own, not from the list; a target of somebody else's may declare that it needs us."""


def requirements(found: Sequence[str], lock: Lock) -> str:
    """The text of requirements-serve.txt: with the sums of all wheels, or, where one is unknown, of none.

    pip takes a file with some sums for one that must have them all.

    Args:
        found: `pins`.
    """
    lines = "".join(f"# left out: {name} ({why})\n" for name, why in left_out().items())
    if missing := lock.missing(found):
        head = (
            f"# NO HASHES: the sums of {', '.join(missing)} are not in {lock.file.name}.\n"
            f"# {MAKE_LOCK}.\n"
            "# Install with --no-deps: this is the whole list.\n"
        )
        return head + lines + "".join(f"{pin}\n" for pin in found)
    head = "# Install with --no-deps --require-hashes: this is the whole list, for x86_64 and aarch64.\n"
    return (
        head
        + lines
        + "".join(
            " \\\n".join([pin, *(f"    --hash=sha256:{sha256}" for sha256 in lock.sums[pin])]) + "\n" for pin in found
        )
    )


def pins(target: str, made_with: Mapping[str, str]) -> tuple[str, ...]:
    """'name==version' of every package that serving a bundle of a target installs, sorted.

    Args:
        made_with: component → version of the bundle's toolchain, which go before what is installed here.

    Raises:
        ToolchainError: a package is not installed here.
    """
    own = (name for name in distributions_of(target) if name != OURSELVES)
    versions = closure((*SERVING, *described(target).packages, *own))
    return tuple(f"{name}=={made_with.get(name, version)}" for name, version in sorted(versions.items()))


def serving_pins(manifest: Manifest) -> tuple[str, ...]:
    """'name==version' of every package that serving this bundle installs, sorted; none of a language model, which an
    engine of others serves.

    Raises:
        ToolchainError: one is not installed here.
    """
    if manifest.task == LANGUAGE:
        return ()
    return pins(manifest.artifact.target, manifest.artifact.toolchain.components)


def left_out() -> dict[str, str]:
    """`LEFT_OUT` and what the installed targets leave out: package → why."""
    found = dict(LEFT_OUT)
    for target in descriptions():
        found.update(target.unneeded)
    return found


def closure(roots: tuple[str, ...]) -> dict[str, str]:
    """Canonical name → installed version of the packages and all they need here, without `left_out`.

    Raises:
        ToolchainError: one is not installed.
    """
    from packaging.requirements import Requirement  # comes with onnxruntime; only whoever writes a bundle needs it
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset()) for name in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    unneeded = {OURSELVES, *left_out()}
    while waiting:
        name, extras = waiting.pop()
        if name in unneeded or (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise ToolchainError(
                f"{name} is not installed here, so the version that serving needs is unknown. "
                f"Install the workbench again: {install_command()}"
            ) from None
        found[name] = distribution.version
        for text in distribution.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return found


# --- the bill of materials ------------------------------------------------------------------------------------------


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
