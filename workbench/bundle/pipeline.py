"""The bundle of a pipeline: those of its stages, the user's code between them, and how they hand on what they found.

pipeline.json     stages, where their items come from, their service settings, figures with intervals
stages/NAME/      the bundle of each stage's recipe, whole
glue/             the user's Python, with all that it imports or names from its folder
golden.npz        requests; golden.json the answers that this very pipeline gave to them
SHA256SUMS        of every other file, in sha256sum's format; SHA256SUMS.minisig where it was signed
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.bundle.bounds import json_object
from workbench.bundle.manifest import PIPELINE
from workbench.bundle.opened import Bundle, read_bounded, read_bundle
from workbench.bundle.paths import MOST_SUMS_BYTES, SIGNATURE, SUMS, entries, open_inside, strangers, sums_text
from workbench.bundle.signing import SecretKey, TrustedKeys
from workbench.bundle.verify import Signer, check_signature
from workbench.bundle.write import check_free, sign_bundle
from workbench.user_code import UserCode, read_code
from workbench.values.documents.canonical import DecodeError, decode, encode, file_digest
from workbench.values.errors import BundleError, ConfigError
from workbench.values.model import TensorSpec
from workbench.values.pipeline import Item, Wiring, plain
from workbench.values.preprocess import Array
from workbench.values.service import ServiceSettings
from workbench.values.system.scratch import scratch_folder

STAGES, GLUE = "stages", "glue"
_REQUESTS, _ANSWERS, _NEEDS = "golden.npz", "golden.json", "requirements-glue.txt"
_MOST_BYTES, _MOST_GOLDEN_BYTES = 1 << 24, 1 << 30
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineManifest:
    """The contents of pipeline.json.

    Attributes:
        stages: in the order in which they run; their glue is 'file.py:function' below glue/.
        settings: stage → its service.
        request: tensors of a request; their first axis counts requests.
        answer: 'file.py:function', '' for the outputs of the last stage; `answer_takes` its parameters.
        figures: what was measured and predicted of it, with the evidence of each.
        versions: of the libraries that the user's code imports, as they were.
    """

    name: str
    about: str
    workbench: str
    identity: str
    emulated: bool
    stages: tuple[Wiring, ...]
    settings: Mapping[str, ServiceSettings]
    request: tuple[TensorSpec, ...]
    answer: str
    answer_takes: tuple[str, ...]
    figures: Mapping[str, Any]
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBundle:
    """A pipeline's bundle on disk, its manifest and those of its stages read; other bytes are checked when asked."""

    directory: Path
    manifest: PipelineManifest
    manifest_sha256: str
    sums: bytes
    bundles: Mapping[str, Bundle]

    def code(self, glue: str) -> UserCode:
        """The user's function that glue names."""
        name, _, function = glue.rpartition(":")
        open_file = open_inside(self.directory, f"{GLUE}/{name}")
        os.close(open_file)
        return read_code(self.directory / GLUE / name, function, key=PIPELINE)

    def golden(self) -> tuple[list[Item], list[Any]]:
        """Requests, and the answers to them as JSON knows them. Raises BundleError: the files hold something else."""
        content = read_bounded(self.directory, _REQUESTS, _MOST_GOLDEN_BYTES)
        answers = json_object(read_bounded(self.directory, _ANSWERS, _MOST_GOLDEN_BYTES), "golden answers")["answers"]
        requests: list[dict[str, Array]] = [{} for _ in answers]
        try:
            for name, array in arrays_of_npz(content).items():
                number, _, tensor = name.partition(".")
                requests[int(number)][tensor] = array
        except (ValueError, IndexError) as error:
            raise BundleError(f"{self.directory}: {_REQUESTS} cannot be used: {error}.") from error
        return list(requests), list(answers)


def is_pipeline_bundle(directory: Path) -> bool:
    return (directory / PIPELINE).is_file()


def read_pipeline_bundle(directory: Path) -> PipelineBundle:
    """Raises BundleError: it is incomplete, damaged, or says what no pipeline's bundle may."""
    content, listing = read_bounded(directory, PIPELINE, _MOST_BYTES), read_bounded(directory, SUMS, MOST_SUMS_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if sums_text({PIPELINE: found}).encode() not in listing:
        raise BundleError(f"{directory}: {PIPELINE} does not match {SUMS}: one of them is damaged. Copy it again.")
    try:
        body = json_object(content, "pipeline")
        if (version := body.pop("version", None)) != VERSION:
            raise BundleError(
                f"{directory}: version {version!r:.20} is unknown; workbench {__version__} reads {VERSION}."
            )
        manifest = decode(PipelineManifest, body, "pipeline")
        names = [each.name for each in manifest.stages]
        if not names or len(set(names)) < len(names) or manifest.settings.keys() != set(names):
            raise BundleError(f"{directory}: {PIPELINE} does not name each stage with its settings once.")
        for place, each in enumerate(manifest.stages):
            if not {*each.takes, *(s for _, s, _ in each.edges)} <= {"request", *names[:place]}:
                raise BundleError(f"{directory}: the stage {each.name} takes what does not come before it.")
        bundles = {name: read_bundle(directory / STAGES / name) for name in names}
    except (DecodeError, ConfigError, ValueError) as error:
        raise BundleError(f"{directory}: {PIPELINE} cannot be used: {error}.") from error
    return PipelineBundle(directory=directory, manifest=manifest, manifest_sha256=found, sums=listing, bundles=bundles)


def check_pipeline(bundle: PipelineBundle, trusted: TrustedKeys | None) -> Signer | None:
    """Its signature where one is required, and every byte.

    Raises:
        BundleError: names the first file that is missing, extra or changed; or what is wrong with the signature.
    """
    signer = None if trusted is None else check_signature(bundle, trusted)
    listed: dict[str, str] = {}
    for line in bundle.sums.decode("ascii", "replace").splitlines():
        sha256, _, name = line.partition("  ")
        listed[name] = sha256
        with os.fdopen(open_inside(bundle.directory, name), "rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != sha256:
            raise BundleError(f"{bundle.directory}: {name} has another sha256: it is damaged. Copy the bundle again.")
    if extra := strangers(bundle.directory, {*listed, SUMS, SIGNATURE}):
        raise BundleError(f"{bundle.directory}: {extra[0]} does not belong to the bundle. Remove it.")
    return signer


def glue_differences(manifest: PipelineManifest) -> list[str]:
    """Libraries of the user's code that are missing here, or of another version than where its answers were made."""
    found = []
    for name, wanted in map(str.split, manifest.versions):
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            here = "none"
        if here != wanted:
            found.append(f"its code was run with {name} {wanted}, and here is {here}: pip install -r {_NEEDS}")
    return found


def write_pipeline_bundle(
    to: Path,
    manifest: PipelineManifest,
    codes: Sequence[UserCode],
    stage: Callable[[str, Path], None],
    golden: tuple[Sequence[Item], Sequence[Any]],
    secret: SecretKey | None = None,
) -> Path:
    """Write a pipeline's bundle, whole by one rename.

    Args:
        codes: the user's functions, of one folder.
        stage: writes the bundle of a stage into a folder.
        golden: requests and this pipeline's answers.

    Raises:
        ConfigError: `to` exists, or the code lies in several folders.
    """
    check_free(to)
    folders = {code.file.parent for code in codes}
    if len(folders) > 1:
        said = " and ".join(sorted(map(str, folders)))
        raise ConfigError(f"the pipeline's code lies in {said}.", key=GLUE, hint="Put it into one folder.")
    to.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder("bundle", inside=to.parent) as scratch:
        building = scratch / to.name
        (building / STAGES).mkdir(parents=True)
        for each in manifest.stages:
            stage(each.name, building / STAGES / each.name)
        for name in sorted({name for code in codes for name in code.files}):
            (building / GLUE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(next(iter(folders)) / name, building / GLUE / name)
        requests, answers = golden
        arrays = {f"{place}.{name}": a for place, request in enumerate(requests) for name, a in request.items()}
        with (building / _REQUESTS).open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]  # arrays by name
        _write_json(building / _ANSWERS, {"answers": [plain(answer) for answer in answers]})
        needs = "".join(f"{name}=={version}\n" for name, version in map(str.split, manifest.versions))
        (building / _NEEDS).write_text(needs, encoding="utf-8")
        _write_json(building / PIPELINE, {"version": VERSION, **encode(manifest)})
        sums = {name: file_digest(building / name) for name in entries(building)}
        (building / SUMS).write_text(sums_text(sums), encoding="ascii")
        if secret is not None:
            sign_bundle(building, manifest.name, sums[PIPELINE], secret)
        building.rename(to)
    return to


def _write_json(path: Path, body: Mapping[str, Any]) -> None:
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def arrays_of_npz(body: bytes) -> dict[str, Array]:
    """The arrays of an NPZ that is not compressed: nothing in it is larger than it is itself.

    Raises:
        ValueError: it is none, is compressed, or holds what is no array of numbers.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            if sum(info.file_size for info in members) > len(body) or any(info.compress_type for info in members):
                raise ValueError("it is compressed; write it with numpy.savez")
        with np.load(io.BytesIO(body), allow_pickle=False) as kept:
            found = {name: kept[name] for name in kept.files}
    except (zipfile.BadZipFile, OSError, EOFError, KeyError, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"it is no NPZ file: {error}") from error
    if wrong := [name for name, array in found.items() if array.dtype.kind not in "fiub"]:
        raise ValueError(f"{wrong[0]!r:.60} holds no numbers")
    return found
