"""The version that a bundle has in the registry, and what the registry keeps of it: as whole as the bundle itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.readme import description, provenance
from workbench.bundle.verify import check_files
from workbench.tracking.champion import open_versions
from workbench.tracking.releases import Act
from workbench.tracking.versions import Version, Versions
from workbench.values.errors import BundleError


def register(bundle: Path, workspace: Path) -> Version:
    """The version of a bundle in the workspace's registry, made when it is new; repeating it changes nothing.

    Raises:
        BundleError: no bundle, or damaged.
        ToolchainError: the store cannot be written.
    """
    opened = read_bundle(bundle)
    check_files(opened)
    with versions_of(workspace, opened) as versions:
        return version_of(versions, opened, act="export")


def version_of(versions: Versions, bundle: Bundle, act: Act = "registration") -> Version:
    """The bundle's version, whose kept copy is as whole as the bundle: production may be served from it.

    Raises:
        BundleError: the copy that the registry keeps is damaged.
    """
    version = versions.register(
        bundle.directory,
        manifest_sha256=bundle.manifest_sha256,
        candidate_id=bundle.manifest.candidate_id,
        tags=provenance(bundle),
        description=description(bundle),
        act=act,
    )
    kept = kept_bundle(versions, version)
    try:
        check_files(kept)
    except BundleError as error:
        raise BundleError(
            f"the copy that the registry keeps of version {version.number} is damaged: {error} To have it copied anew, "
            f"remove {kept.directory} and run this again."
        ) from error
    return version


def kept_bundle(versions: Versions, version: Version) -> Bundle:
    """What the registry keeps of a version, and that it is the bundle which was registered.

    Raises:
        BundleError: it is no bundle any more, or another.
        ToolchainError: it is gone.
    """
    folder = versions.bundle(version)
    kept = read_bundle(folder)
    if kept.manifest_sha256 != version.manifest_sha256:
        raise BundleError(
            f"version {version.number} of {version.name!r} is not what was registered: manifest.json in {folder} has "
            f"sha256 {kept.manifest_sha256}, the registry says {version.manifest_sha256}. Restore that folder."
        )
    return kept


@contextlib.contextmanager
def versions_of(workspace: Path, bundle: Bundle) -> Iterator[Versions]:
    with open_versions(workspace, bundle.manifest.name, about=bundle.manifest.about) as versions:
        yield versions
