"""Putting a bundle together: beside its place, whole, then one rename."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.bundle.fingerprint import compare
from workbench.bundle.golden import GoldenBatch
from workbench.bundle.manifest import (
    DEPLOY,
    INTEGRITY,
    MANIFEST,
    MODEL,
    README,
    FileSum,
    HoldoutOutcomes,
    Manifest,
    Shipped,
    SourceModel,
    TextSettings,
)
from workbench.bundle.opened import read_bounded
from workbench.bundle.paths import MOST_SUMS_BYTES, SIGNATURE, SUMS, entries, name_fault, sums_text
from workbench.bundle.prompts import PROMPTS, GoldenPrompts
from workbench.bundle.readme import readme
from workbench.bundle.requirements import SBOM, sbom
from workbench.bundle.signing import COMMENT, SecretKey, sign
from workbench.targets.base import Array
from workbench.values.agreement import Agreements
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import encode, file_digest
from workbench.values.errors import BundleError, ConfigError, ToolchainError
from workbench.values.model import Model
from workbench.values.preprocess import Preprocessor
from workbench.values.system.files import write_text_atomically
from workbench.values.system.scratch import scratch_folder

_GOLDEN, _TEXTS, _RECORD = "golden/samples.npz", "golden/texts.json", "record.json"
_OUTCOMES = "outcomes/holdout.npz"
_AGREEMENT = "agreement.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleContents(Shipped):
    """Everything `write_bundle` puts together.

    Attributes:
        artifact_directory: where the files of `artifact` lie.
        record: file of the QuantizationRecord, None when the scheme has none.
        preprocessor: None when requests are arrays.
        outcomes: file of the holdout outcomes, None when the candidate was not confirmed.
        outcome_samples_sha256: `HoldoutOutcomes.samples_sha256` of that file.
        prompts: of a language model, in place of `golden`.
        agreement: how far its answers lie from float32, by the strongest evidence; None where nobody measured it.
        extra_files: name in the bundle → file to copy.
    """

    about: str = ""
    labels: tuple[str, ...] = ()
    artifact_directory: Path
    model: Model
    golden: tuple[GoldenBatch, ...]
    record: Path | None = None
    preprocessor: Preprocessor | None = None
    outcomes: Path | None = None
    outcome_samples_sha256: str = ""
    prompts: GoldenPrompts | None = None
    agreement: Agreements | None = None
    extra_files: Mapping[str, Path] = field(default_factory=dict)


def write_bundle(
    to: Path,
    contents: BundleContents,
    *,
    allow_emulated: bool = False,
    secret: SecretKey | None = None,
    deployment: Callable[[Manifest], Mapping[str, str]] | None = None,
) -> Path:
    """Write a bundle that appears whole, by one rename, and return its folder.

    Args:
        secret: signs it.
        deployment: name → text of the files under deploy/; without it the bundle has none.

    Raises:
        ConfigError: `to` exists.
        BundleError: the artifact was made or measured on an emulator, is not the one that was evaluated, or its
            files changed since.
        ToolchainError: no space, no permission to write, or no package that serving needs: the bill of materials
            names its version.
    """
    check_free(to)
    _refuse_unfit(contents, allow_emulated)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("bundle", inside=to.parent) as scratch:
            building = scratch / to.name
            building.mkdir()
            _fill(building, contents, deployment)
            if secret is not None:
                sign_bundle(building, contents.name, file_digest(building / MANIFEST), secret)
            _flush(building)
            building.rename(to)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise ToolchainError(f"The bundle cannot be written to {to.parent}: {error}. Choose another folder.") from error
    return to


def sign_bundle(directory: Path, name: str, manifest_sha256: str, secret: SecretKey) -> None:
    """Write SHA256SUMS.minisig, in place of one that is there. What is signed must have been checked before."""
    sums = read_bounded(directory, SUMS, MOST_SUMS_BYTES)
    facts = {
        "name": name,
        "manifest_sha256": manifest_sha256,
        "signed_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # ASCII: minisign refuses to show anything else
    signature = sign(secret, sums, COMMENT + json.dumps(facts, sort_keys=True))
    write_text_atomically(directory / SIGNATURE, signature.to_text(f"{SUMS}, signature from workbench"))


def _as_measured(toolchain: Toolchain) -> str:
    """How to export with the threads that were there, where they are part of a toolchain: its kernels round by them."""
    threads = next((fact.split()[0] for fact in toolchain.features if fact.endswith(" threads")), None)
    return "" if threads is None else f"export with OMP_NUM_THREADS={threads}, as it was swept, or "


def check_free(to: Path) -> None:
    """Raises ConfigError where a bundle's folder exists, which is worth knowing before what it holds is computed."""
    if os.path.lexists(to):
        raise ConfigError("exists already.", file=to, key="--to", hint="Name a folder that does not exist yet.")


def _refuse_unfit(contents: BundleContents, allow_emulated: bool) -> None:
    if contents.artifact.toolchain.emulated and not allow_emulated:
        raise BundleError(
            f"Candidate {contents.candidate.short_id} was compiled by an emulator; no device ran it. "
            "Use --allow-emulated to export it for a rehearsal all the same."
        )
    for evaluation in contents.evaluations:
        if evaluation.candidate.id != contents.candidate.id:
            raise BundleError(
                f"The evaluation of {evaluation.candidate.short_id} does not belong to {contents.candidate.short_id}."
            )
        if evaluation.toolchain.fingerprint != contents.artifact.toolchain.fingerprint:
            changes = "; ".join(d.words for d in compare(evaluation.toolchain, contents.artifact.toolchain))
            raise BundleError(
                f"Candidate {contents.candidate.short_id} was measured with another toolchain than it is compiled with "
                f"now: {changes}. Its figures do not hold here; {_as_measured(evaluation.toolchain)}sweep again."
            )
    for file in contents.artifact.files:
        compiled = contents.artifact_directory / file.file
        if not compiled.is_file() or file_digest(compiled) != file.sha256:
            raise BundleError(f"{compiled} changed since it was compiled, or is gone. Export again.")
    if not contents.golden and contents.prompts is None:
        raise BundleError("A bundle needs golden samples.")
    for batch in contents.golden:
        for name, array in batch.outputs.items():
            if not np.isfinite(array).all():
                raise BundleError(f"Output {name!r} of a golden sample is not finite; such a model must not be served.")


def _fill(to: Path, contents: BundleContents, deployment: Callable[[Manifest], Mapping[str, str]] | None) -> None:
    p, text, outcomes, prompts = contents.preprocessor, None, None, contents.prompts
    copied = [(f"{MODEL}/{file.file}", contents.artifact_directory / file.file) for file in contents.artifact.files]
    copied += contents.extra_files.items()
    if p is not None:
        text = TextSettings(tokenizer="tokenizer.json", max_length=p.max_length, bins=p.bins, inputs=p.inputs)
        copied.append((text.tokenizer, p.tokenizer))
    if contents.record is not None:
        copied.append((_RECORD, contents.record))
    if contents.outcomes is not None:
        copied.append((_OUTCOMES, contents.outcomes))
        outcomes = HoldoutOutcomes(file=_OUTCOMES, samples_sha256=contents.outcome_samples_sha256)
    for name, source in copied:
        if name_fault(name) or os.path.lexists(to / name):
            raise ValueError(f"{name!r} cannot name a file of the bundle: {name_fault(name) or 'it is there already'}")
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to / name)
    with_texts = any(batch.texts for batch in contents.golden)
    for name, body in (
        ("labels.json", list(contents.labels)),
        (_AGREEMENT, contents.agreement and contents.agreement.to_json()),
        (PROMPTS, prompts and encode(prompts)),
        (_TEXTS, with_texts and [encode(batch.texts) for batch in contents.golden]),
    ):
        if body:
            _write_json(to / name, body)
    if prompts is None:
        arrays: dict[str, Array] = {}
        for index, batch in enumerate(contents.golden):
            for role, named in (("feeds", batch.feeds), ("outputs", batch.outputs)):
                arrays |= {f"{index}/{role}/{name}": array for name, array in named.items()}
        (to / _GOLDEN).parent.mkdir(exist_ok=True)
        np.savez(to / _GOLDEN, allow_pickle=False, **arrays)
    model = contents.model
    shared: dict[str, Any] = {each.name: getattr(contents, each.name) for each in fields(Shipped)}
    manifest = Manifest(
        **shared,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        workbench=__version__,
        integrity=INTEGRITY,
        candidate_id=contents.candidate.id,
        model=SourceModel(
            file=model.path.name,
            sha256=model.sha256,
            size_bytes=model.size_bytes,
            opset=model.opset,
            inputs=model.inputs,
            outputs=model.outputs,
            origin=None if model.origin is None else replace(model.origin, path=Path(model.origin.path.name)),
        ),
        text=text,
        record=_RECORD if contents.record is not None else None,
        golden=_GOLDEN if prompts is None else PROMPTS,
        golden_texts=_TEXTS if with_texts else None,
        golden_batches=len(contents.golden if prompts is None else prompts.prompts),
        files={},
        outcomes=outcomes,
        agreement=None if contents.agreement is None else _AGREEMENT,
    )
    if deployment is not None:
        (to / DEPLOY).mkdir()
        for name, words in deployment(manifest).items():
            (to / DEPLOY / name).parent.mkdir(exist_ok=True)
            (to / DEPLOY / name).write_text(words, encoding="utf-8")
    _write_json(to / SBOM, sbom(manifest))
    (to / README).write_text(readme(replace(manifest, files=_sums(to))), encoding="utf-8")
    sums = _sums(to)
    body = replace(manifest, files=sums).to_json()
    text_form = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    (to / MANIFEST).write_text(text_form, encoding="utf-8")
    listing = {MANIFEST: file_digest(to / MANIFEST), **{name: listed.sha256 for name, listed in sums.items()}}
    (to / SUMS).write_text(sums_text(listing), encoding="ascii")


def _write_json(file: Path, body: object) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _sums(directory: Path) -> dict[str, FileSum]:
    return {
        name: FileSum(sha256=file_digest(directory / name), size_bytes=(directory / name).stat().st_size)
        for name in sorted(entries(directory))
    }


def _flush(root: Path) -> None:
    for path in (*root.rglob("*"), root):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
