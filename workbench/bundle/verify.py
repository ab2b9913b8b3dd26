"""Checking a bundle: its signature, every byte, then the golden samples on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.fingerprint import admit
from workbench.bundle.golden import GoldenBatch, golden_batches, preprocessor_of
from workbench.bundle.manifest import MANIFEST
from workbench.bundle.opened import Bundle, read_bounded, read_bundle
from workbench.bundle.paths import SIGNATURE, SUMS, strangers
from workbench.bundle.prompts import PromptReplay, replay_prompts
from workbench.bundle.signing import (
    COMMENT,
    MOST_SIGNATURE_BYTES,
    Signature,
    SignatureError,
    TrustedKeys,
    key_name,
    parse_signature,
    verify,
)
from workbench.targets import described, open_target
from workbench.targets.base import Array, Session
from workbench.targets.language import LanguageTarget
from workbench.values.documents.json_reader import loads
from workbench.values.errors import BundleError, ConfigError, MeasureError
from workbench.values.preprocess import Preprocessor, collate, encode

_OPTION = "--trusted-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify_bundle` found in a sound bundle.

    Attributes:
        samples: golden samples replayed; 0 when nothing was replayed.
        largest_error: largest absolute difference from a kept output or logit, None when nothing was replayed.
        prompts: of a language model, how the replay went.
        warnings: how this machine differs from the one the figures come from, and whether they were emulated.
        signature: in words, whose it is.
    """

    files: int
    size_bytes: int
    samples: int
    largest_error: float | None
    warnings: tuple[str, ...]
    signature: str
    prompts: PromptReplay | None = None

    @property
    def summary(self) -> str:
        text = f"{self.files} files ({self.size_bytes / 1e6:.1f} MB) match their sha256; {self.signature}"
        if self.largest_error is None:
            return f"{text}; golden samples not replayed"
        if self.prompts is not None:
            return f"{text}; {self.prompts.words}"
        return f"{text}; {self.samples} golden samples replayed, largest difference {self.largest_error:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Whose signature a bundle carries, after it was checked.

    Attributes:
        key: id of the key, and whose it is by the file of trusted keys.
        trusted_comment: the signed words beside it: name, manifest and time where the workbench wrote them.
    """

    key: str
    trusted_comment: str


def verify_bundle(directory: Path, *, replay: bool = True, trusted: TrustedKeys | None = None) -> VerifyReport:
    """Check every byte of a bundle, then load it here and replay its golden samples; of a language model its prompts.

    Replaying starts from the texts where there are any, so that tokenizer and settings are checked with the model. A
    language model's checkpoint is read by the rules of the engine that serves it, and executed on the processor.

    Args:
        trusted: whose signature is required; None for none.

    Raises:
        BundleError: a file is missing, extra or changed; the signature is missing or does not hold; the model does
            not load here; an output differs by more than the tolerance.
        ToolchainError: this machine lacks what the target needs.
    """
    bundle = read_bundle(directory)
    signer = check_bundle(bundle, trusted)
    manifest = bundle.manifest
    warnings = []
    if manifest.artifact.toolchain.emulated:
        warnings.append("it was made on an emulator: none of its figures was measured on a device")
    samples, largest = 0, None
    prompts: PromptReplay | None = None
    if replay:
        target = open_target(manifest.artifact.target)
        here = target.toolchain()
        changes = admit(manifest.artifact.toolchain, here, policy="warn")
        warnings += changes
        bundle.check_model()
        if manifest.task == LANGUAGE:
            if not isinstance(target, LanguageTarget):
                raise BundleError(f"{directory}: target {target.name!r} answers no prompts, so it made no such bundle.")
            try:
                prompts = replay_prompts(bundle, target.prompted(bundle.model_directory))
            except MeasureError as error:
                raise _unfit(bundle, error, _said(changes)) from error
            samples, largest = prompts.prompts, prompts.largest
            warnings += [prompts.device] if prompts.device else []
        else:
            samples, largest = replay_apart(bundle, changes)
    signed = (directory / SIGNATURE).is_file()
    unchecked = f"its signature was not checked: no {_OPTION}" if signed else "not signed"
    return VerifyReport(
        files=len(manifest.files) + 2,
        size_bytes=sum(s.size_bytes for s in manifest.files.values()),
        samples=samples,
        largest_error=largest,
        warnings=tuple(warnings),
        signature=f"signed by {signer.key}" if signer is not None else unchecked,
        prompts=prompts,
    )


def replay_apart(bundle: Bundle, changes: Sequence[str] = ()) -> tuple[int, float]:
    """`replay_golden` in a process with limits where the host computes: a graph of some hundred bytes can fill it."""
    from workbench.graph.door import call_apart  # not at the top: services check bundles too, and see no graphs

    artifact, directory = bundle.manifest.artifact, str(bundle.directory.resolve())
    if not described(artifact.target).on_host:
        return replay_here(directory, changes)
    arguments = {"directory": directory, "changes": list(changes)}
    about = "opening it and replaying its golden samples"
    try:
        samples, largest = call_apart(bundle.directory, artifact.size_bytes, replay_here, arguments, about=about)
    except ConfigError as error:
        raise _unfit(bundle, error, "") from error
    return samples, largest


def replay_here(directory: str, changes: Sequence[str]) -> tuple[int, float]:
    """Open the bundle's model in this process and replay its golden samples; see `replay_golden`."""
    bundle = read_bundle(Path(directory))
    manifest = bundle.manifest
    target = open_target(manifest.artifact.target)
    try:
        session = target.open(manifest.artifact, bundle.model_directory, manifest.candidate)
    except MeasureError as error:
        raise _unfit(bundle, error, _said(changes)) from error
    with contextlib.closing(session):
        return replay_golden(bundle, session, changes)


def check_bundle(bundle: Bundle, trusted: TrustedKeys | None) -> Signer | None:
    """Everything that can be said of a bundle without running it: its signature where one is required, every byte.

    Raises:
        BundleError: as `check_signature` and `check_files`.
    """
    signer = None if trusted is None else check_signature(bundle, trusted)
    check_files(bundle)
    return signer


def check_files(bundle: Bundle) -> None:
    """Compare every byte of a bundle with its sums; milliseconds for each 10 MB.

    Raises:
        BundleError: names the first file that is missing, extra or changed.
    """
    directory, files = bundle.directory, bundle.manifest.files
    for name in files:
        bundle.file(name)
    if extra := strangers(directory, {*files, MANIFEST, SUMS, SIGNATURE}):
        more = f" (and more: {', '.join(extra[1:])})" if len(extra) > 1 else ""
        raise BundleError(f"{directory}: {extra[0]} does not belong to the bundle{more}. Remove it.")
    if os.path.lexists(directory / SIGNATURE):  # whoever may check it later, it is one
        read_signature(directory)
    again = read_bundle(directory)
    if (again.manifest_sha256, again.sums) != (bundle.manifest_sha256, bundle.sums):
        raise BundleError(f"{directory}: {MANIFEST} changed while the bundle was checked. Copy the bundle again.")


def replay_golden(bundle: Bundle, session: Session, changes: Sequence[str] = ()) -> tuple[int, float]:
    """Run the golden samples in a session that is open; returns how many there are, and the largest absolute error.

    Args:
        changes: how this machine differs from the one of the figures; said where a sample fails.

    Raises:
        BundleError: an output differs by more than the tolerance, a text becomes other feeds, the model does not run.
    """
    preprocessor = preprocessor_of(bundle)
    samples, largest = 0, 0.0
    for index, batch in enumerate(golden_batches(bundle)):
        if preprocessor is not None and batch.texts:
            _check_feeds(bundle, index, batch, preprocessor)
        try:
            outputs = session.run(batch.feeds)
        except MeasureError as error:
            raise _unfit(bundle, error, _said(changes)) from error
        largest = max(largest, _largest_error(bundle, index, batch, outputs, _said(changes)))
        samples += len(next(iter(batch.feeds.values())))
    return samples, largest


def _unfit(bundle: Bundle, error: ConfigError | MeasureError, where: str) -> BundleError:
    """A bundle has no candidate to blame: it cannot be served here."""
    return BundleError(f"{bundle.directory}: the model does not run on this machine: {error}{where}")


def _said(changes: Sequence[str]) -> str:
    return f" Differences: {'; '.join(changes)}." if changes else ""


def _check_feeds(bundle: Bundle, index: int, batch: GoldenBatch, preprocessor: Preprocessor) -> None:
    width = next((array.shape[1] for array in batch.feeds.values() if array.ndim > 1), 0)
    try:
        feeds = collate(preprocessor, encode(preprocessor, batch.texts), width)
    except ValueError as error:
        raise BundleError(f"{bundle.directory}: the texts of golden batch {index} fit no batch: {error}.") from error
    for name, array in batch.feeds.items():
        if name not in feeds or not np.array_equal(feeds[name], array):
            raise BundleError(
                f"{bundle.directory}: the texts of golden batch {index} become another {name!r} here than when the "
                "bundle was made. Install the tokenizers version it was made with."
            )


def _largest_error(bundle: Bundle, index: int, batch: GoldenBatch, outputs: Mapping[str, Array], where: str) -> float:
    tolerance, largest = bundle.manifest.tolerance, 0.0
    for name, expected in batch.outputs.items():
        got = outputs.get(name)
        if got is None or got.shape != expected.shape:
            found = "absent" if got is None else f"of shape {got.shape}"
            raise BundleError(
                f"{bundle.directory}: output {name!r} of golden batch {index} is {found}, not {expected.shape}.{where}"
            )
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        worst = float(error.max(initial=0.0))
        if not bool(np.all(error <= tolerance.margin(expected))):  # a NaN is not within any tolerance either
            raise BundleError(
                f"{bundle.directory}: output {name!r} of golden batch {index} differs by {worst:.3g}; "
                f"{tolerance.absolute:g} + {tolerance.relative:g} of the value are allowed.{where}"
            )
        largest = max(largest, worst)
    return largest


# --- whose it is: a signature over SHA256SUMS, which holds the sum of every other file ------------------------------


class Named(Protocol):
    """What a manifest of whatever kind has."""

    @property
    def name(self) -> str: ...


class Signable(Protocol):
    """A folder whose sums may be signed: a bundle, or that of a pipeline."""

    @property
    def directory(self) -> Path: ...
    @property
    def sums(self) -> bytes: ...
    @property
    def manifest_sha256(self) -> str: ...
    @property
    def manifest(self) -> Named: ...


def check_signature(bundle: Signable, trusted: TrustedKeys) -> Signer:
    """Require a signature of one of these keys over the sums that were read with the bundle.

    Raises:
        BundleError: there is none; it is none; by a key that is not listed, or is revoked; or it does not hold.
    """
    place = f"{bundle.directory}: {SIGNATURE}"
    if not os.path.lexists(bundle.directory / SIGNATURE):
        raise BundleError(
            f"{bundle.directory}: it is not signed, and {trusted.file} says whose signatures are required here. "
            "Get the signed bundle, or sign it after you checked it: workbench sign."
        )
    signature = read_signature(bundle.directory)
    keys = trusted.of(signature.key_id)
    if not keys:
        raise BundleError(
            f"{place} is by key {key_name(signature.key_id)}, which {trusted.file} does not list. Add the key's line "
            "if you trust whoever holds it; otherwise do not use this bundle."
        )
    failed = None
    for key in keys:
        try:
            verify(key.public, bundle.sums, signature)
        except SignatureError as error:
            failed = error
            continue
        if key.revoked:
            raise BundleError(
                f"{place} is by key {key.words}, which {trusted.file} lists as revoked. Sign the bundle with another "
                "key after you checked where it comes from."
            )
        _check_comment(bundle, signature.trusted_comment)
        return Signer(key=key.words, trusted_comment=signature.trusted_comment)
    raise BundleError(f"{place} is not valid: {failed}. Do not use this bundle.")


def read_signature(directory: Path) -> Signature:
    """The signature beside the sums, whoever made it.

    Raises:
        BundleError: it is no plain file inside the bundle, too large, or no signature of minisign.
    """
    try:
        return parse_signature(read_bounded(directory, SIGNATURE, MOST_SIGNATURE_BYTES))
    except SignatureError as error:
        raise BundleError(f"{directory}: {SIGNATURE} cannot be used: {error}. Copy the bundle again.") from error


def _check_comment(bundle: Signable, comment: str) -> None:
    """A comment that the workbench wrote names this bundle; another tool's says what it likes."""
    if not comment.startswith(COMMENT):
        return
    try:
        facts: Any = loads(comment.removeprefix(COMMENT))
        named = (facts["name"], facts["manifest_sha256"])
    except (ValueError, KeyError, TypeError):
        named = None
    if named != (bundle.manifest.name, bundle.manifest_sha256):
        raise BundleError(f"{bundle.directory}: {SIGNATURE} was made for another bundle: {comment[:200]}.")
