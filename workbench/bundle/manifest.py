"""What a bundle says about itself, and reading it back.

manifest.json is one `Manifest` with a `version`; SHA256SUMS protects it and repeats its sums in sha256sum's format.

    version 1    without service, outcomes and deploy/; read with the default service settings
    version 2    what `workbench serve` uses, and what `workbench promote` compares
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench import __version__
from workbench.candidate import Candidate
from workbench.canonical import DecodeError, decode, encode, file_digest
from workbench.errors import BundleError
from workbench.model import TensorSpec
from workbench.preprocess import Preprocessor, Text, TokenInput, open_preprocessor
from workbench.results import Artifact, Evaluation
from workbench.service import ServiceSettings
from workbench.targets.base import Array, Feeds

VERSION, READ_VERSIONS = 2, (1, 2)
MANIFEST, SUMS, README, MODEL, DEPLOY = "manifest.json", "SHA256SUMS", "README.md", "model", "deploy"
INTEGRITY = "sha256 sums find damage; they are no signature and prove nothing about who wrote the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenBatch:
    """One batch and what the exported artifact gave for it.

    Attributes:
        texts: what the feeds were made from, row by row; empty when the data are not text.
    """

    feeds: Feeds
    outputs: Mapping[str, Array]
    texts: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A replayed output x may differ from the kept one y by `absolute + relative * |y|`."""

    absolute: float
    relative: float

    def margin(self, kept: Array) -> npt.NDArray[np.float64]:
        """How far each replayed value may lie from the kept one; float64, of its shape."""
        allowed: npt.NDArray[np.float64] = self.absolute + self.relative * np.abs(kept.astype(np.float64))
        return allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSum:
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModel:
    """The float ONNX model the artifact was made from; its file is not in the bundle."""

    file: str
    sha256: str
    size_bytes: int
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """How a text becomes feeds: the arguments of `workbench.preprocess.open_preprocessor`.

    Attributes:
        tokenizer: file in the bundle.
    """

    tokenizer: str
    max_length: int
    bins: tuple[int, ...]
    inputs: tuple[TokenInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutOutcomes:
    """What became of every holdout sample, so that two bundles can be compared sample by sample without the data.

    Attributes:
        file: in the bundle, as `workbench.metrics.save_outcomes` writes it.
        samples_sha256: digest of the scored samples, their order and their labels; equal in two bundles means the very
            same samples, however each of them tokenizes and pads. Tensors are scored against the float model, which
            joins the digest there.
    """

    file: str
    samples_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of manifest.json. `files` has every file but manifest.json and SHA256SUMS.

    Attributes:
        service: what the service uses unless its command says otherwise.
        outcomes: None where the candidate was not confirmed on holdout.
    """

    name: str
    about: str
    task: str
    created_at: str
    workbench: str
    integrity: str
    candidate_id: str
    candidate: Candidate
    artifact: Artifact
    evaluations: tuple[Evaluation, ...]
    baseline: tuple[Evaluation, ...]
    model: SourceModel
    datasets: Mapping[str, str]
    labels: tuple[str, ...]
    text: TextSettings | None
    record: str | None
    golden: str
    golden_texts: str | None
    golden_batches: int
    tolerance: Tolerance
    files: Mapping[str, FileSum]
    service: ServiceSettings = field(default_factory=ServiceSettings)
    outcomes: HoldoutOutcomes | None = None

    @property
    def deploy_files(self) -> tuple[str, ...]:
        """Files under deploy/, sorted; empty in version 1, and before the bundle is written."""
        return tuple(sorted(name for name in self.files if name.startswith(f"{DEPLOY}/")))

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **encode(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle on disk whose manifest was read; its bytes are checked by `verify_bundle` only."""

    directory: Path
    manifest: Manifest

    @property
    def model_directory(self) -> Path:
        return self.directory / MODEL


def read_bundle(directory: Path) -> Bundle:
    """Read the manifest, after comparing it with its sum.

    Raises:
        BundleError: no bundle, an unknown version, or a damaged manifest.
    """
    try:
        text = (directory / MANIFEST).read_bytes()
        sums = (directory / SUMS).read_bytes()
    except FileNotFoundError as error:
        raise BundleError(f"{directory}: {Path(error.filename).name} is missing; this is no complete bundle.") from None
    except OSError as error:
        raise BundleError(f"{directory}: cannot be read: {error}.") from error
    expected = f"{file_digest(directory / MANIFEST)}  {MANIFEST}".encode()
    if expected not in sums.splitlines():
        raise BundleError(f"{directory}: {MANIFEST} does not match {SUMS}: one of them is damaged. Copy it again.")
    try:
        body = json.loads(text)
        version = body.pop("version", None)
        if version not in READ_VERSIONS:
            known = " and ".join(map(str, READ_VERSIONS))
            raise BundleError(
                f"{directory}: bundle version {version!r} is unknown; workbench {__version__} reads {known}."
            )
        manifest = decode(Manifest, body, "manifest")
    except (DecodeError, ValueError, AttributeError) as error:
        raise BundleError(f"{directory}: {MANIFEST} cannot be used: {error}.") from error
    return Bundle(directory=directory, manifest=manifest)


def preprocessor_of(bundle: Bundle) -> Preprocessor | None:
    """The preprocessor that calibration and scoring used, over the bundle's own tokenizer; None without text."""
    text = bundle.manifest.text
    if text is None:
        return None
    return open_preprocessor(
        bundle.directory / text.tokenizer, max_length=text.max_length, bins=text.bins, inputs=text.inputs
    )


def golden_batches(bundle: Bundle) -> tuple[GoldenBatch, ...]:
    """The golden samples as they were written.

    Raises:
        BundleError: the file does not hold what the manifest says.
    """
    manifest = bundle.manifest
    feeds: list[dict[str, Array]] = [{} for _ in range(manifest.golden_batches)]
    outputs: list[dict[str, Array]] = [{} for _ in range(manifest.golden_batches)]
    texts: list[Any] = [()] * manifest.golden_batches
    try:
        with np.load(bundle.directory / manifest.golden, allow_pickle=False) as stored:
            for key in stored.files:
                index, role, name = key.split("/", 2)
                {"feeds": feeds, "outputs": outputs}[role][int(index)][name] = stored[key]
        if manifest.golden_texts is not None:
            texts = json.loads((bundle.directory / manifest.golden_texts).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise BundleError(f"{bundle.directory}: the golden samples cannot be read: {error}.") from error
    return tuple(GoldenBatch(feeds=f, outputs=o, texts=tuple(t)) for f, o, t in zip(feeds, outputs, texts, strict=True))


def sums_text(files: Mapping[str, FileSum], manifest_sha256: str) -> str:
    lines = {MANIFEST: manifest_sha256, **{name: s.sha256 for name, s in files.items()}}
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(lines.items()))


def file_names(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_symlink() or p.is_file())


def is_unsafe(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or not path.parts or ".." in path.parts or path.as_posix() != name or "\n" in name
