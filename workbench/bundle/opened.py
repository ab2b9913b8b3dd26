"""A bundle on disk: its manifest read and held against its bounds, its other bytes compared when they are used."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workbench import __version__
from workbench.bundle.bounds import LANGUAGE, json_object, manifest_faults
from workbench.bundle.manifest import MANIFEST, MODEL, MOST_BYTES, PIPELINE, READ_VERSIONS, Manifest
from workbench.bundle.paths import MOST_SUMS_BYTES, SUMS, open_inside, sums_text
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.errors import BundleError, ConfigError
from workbench.values.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle on disk whose manifest was read and is within bounds; its other bytes are checked when they are used.

    Attributes:
        manifest_sha256: 64 hex digits that name a bundle: its manifest holds the sums of all other files.
        sums: SHA256SUMS, which the manifest determines; what a signature is over.
    """

    directory: Path
    manifest: Manifest
    manifest_sha256: str
    sums: bytes

    @property
    def model_directory(self) -> Path:
        return self.directory / MODEL

    @property
    def float_model(self) -> Model:
        """What it says of the float model it was made from, whose file it does not hold."""
        of = self.manifest.model
        return Model(
            path=self.directory / of.file,
            sha256=of.sha256,
            size_bytes=of.size_bytes,
            opset=of.opset,
            inputs=of.inputs,
            outputs=of.outputs,
            origin=of.origin,
        )

    def file(self, name: str) -> Path:
        """A file of the bundle, for whoever opens it by its path, its bytes compared just now.

        Raises:
            BundleError: `name` is none of its files, no plain file inside it, or has another size or sha256.
        """
        with self._opened(name) as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # typeshed asks for more than it uses
        self._compare(name, found)
        return self.directory / name

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle, which is what was compared with its sum.

        Raises:
            BundleError: as `file`.
        """
        with self._opened(name) as stream:
            content = stream.read(self.manifest.files[name].size_bytes + 1)
        self._compare(name, hashlib.sha256(content).hexdigest())
        return content

    def check_model(self) -> None:
        """Compare the model's files, which a target opens by their paths, just before it does.

        Raises:
            BundleError: one changed.
        """
        for name in self.manifest.model_files:
            self.file(name)

    @property
    def served_here(self) -> bool:
        """Whether a service of the workbench can serve it; language models are served by engines of others."""
        return self.manifest.task != LANGUAGE

    def check_served_here(self) -> None:
        """Raises BundleError for a language model: engines of others serve it, as files under deploy/ say."""
        if not self.served_here:
            raise BundleError(
                f"{self.directory}: it holds a language model, which no service of the workbench serves. The engines "
                "that do, and their commands: deploy/README.md in it. To check it here: workbench verify."
            )

    def _opened(self, name: str) -> BinaryIO:
        listed = self.manifest.files.get(name)
        if listed is None:
            raise BundleError(f"{self.directory}: {name!r} is not among the bundle's files.")
        stream = os.fdopen(open_inside(self.directory, name), "rb")
        size = os.fstat(stream.fileno()).st_size
        if size != listed.size_bytes:
            stream.close()
            raise BundleError(
                f"{self.directory}: {name} has {size} bytes instead of {listed.size_bytes}. Copy the bundle again."
            )
        return stream

    def _compare(self, name: str, sha256: str) -> None:
        if sha256 != self.manifest.files[name].sha256:
            raise BundleError(f"{self.directory}: {name} has another sha256: it is damaged. Copy the bundle again.")


def read_bundle(directory: Path, *, manifest_sha256: str | None = None) -> Bundle:
    """Read the manifest, after comparing it with its sum, and hold it against the bounds of every value.

    Args:
        manifest_sha256: read no other manifest than this one.

    Raises:
        BundleError: no bundle, an unknown version, a damaged manifest, or one that says what none may.
    """
    if not directory.is_dir():
        raise BundleError(f"{directory}: {MANIFEST} is missing; this is no complete bundle.")
    if os.path.lexists(directory / PIPELINE):
        said = "it is a pipeline's bundle, and a model's is asked for. Those of its stages lie in it below stages/"
        raise BundleError(f"{directory}: {said}; serve, verify, sign and load take the whole.")
    for name in (MANIFEST, SUMS):
        if not os.path.lexists(directory / name):
            raise BundleError(f"{directory}: {name} is missing; this is no complete bundle.")
    content = read_bounded(directory, MANIFEST, MOST_BYTES)
    listing = read_bounded(directory, SUMS, MOST_SUMS_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if sums_text({MANIFEST: found}).encode() not in listing:
        raise BundleError(f"{directory}: {MANIFEST} does not match {SUMS}: one of them is damaged. Copy it again.")
    if manifest_sha256 is not None and found != manifest_sha256:
        raise BundleError(
            f"{directory}: it holds another bundle than when this service started (manifest {found[:12]} instead of "
            f"{manifest_sha256[:12]}). Start the service again to serve that one."
        )
    try:
        body = json_object(content, "manifest")
        version = body.pop("version", None)
        if version not in READ_VERSIONS or isinstance(version, bool):
            known = " and ".join(map(str, READ_VERSIONS))
            raise BundleError(
                f"{directory}: bundle version {version!r:.80} is unknown; workbench {__version__} reads {known}."
            )
        manifest = decode(Manifest, body, "manifest")
    except (DecodeError, ConfigError, ValueError) as error:
        raise BundleError(f"{directory}: {MANIFEST} cannot be used: {error}.") from error
    for fault in manifest_faults(manifest):
        raise BundleError(f"{directory}: {MANIFEST} cannot be used: {fault}.")
    sums = sums_text({MANIFEST: found, **{name: listed.sha256 for name, listed in manifest.files.items()}}).encode()
    if sums != listing:
        lines = {*sums.decode().splitlines()} ^ {*listing.decode("ascii", "replace").splitlines()}
        name = min(lines, default="  the order of lines").partition("  ")[2]
        raise BundleError(f"{directory}: {SUMS} and {MANIFEST} differ on {name[:80]!r}: one is damaged. Copy it again.")
    return Bundle(directory=directory, manifest=manifest, manifest_sha256=found, sums=sums)


def read_bounded(directory: Path, name: str, most_bytes: int) -> bytes:
    """The content of a plain file inside a bundle's folder.

    Raises:
        BundleError: there is none that can be read, or it is larger.
    """
    with os.fdopen(open_inside(directory, name), "rb") as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise BundleError(f"{directory}: {name} has more than {most_bytes >> 20} MiB; none of ours has.")
    return content
