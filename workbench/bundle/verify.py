"""Checking a bundle: every byte, then the golden samples on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.bundle.manifest import (
    MANIFEST,
    SUMS,
    Bundle,
    GoldenBatch,
    file_names,
    golden_batches,
    is_unsafe,
    preprocessor_of,
    read_bundle,
    sums_text,
)
from workbench.canonical import file_digest
from workbench.errors import BundleError, MeasureError
from workbench.fingerprint import admit
from workbench.preprocess import Preprocessor, collate, encode
from workbench.targets import open_target
from workbench.targets.base import Array, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify_bundle` found in a sound bundle.

    Attributes:
        samples: golden samples replayed; 0 when nothing was replayed.
        largest_error: largest absolute difference from a kept output, None when nothing was replayed.
        warnings: how this machine differs from the one the figures come from, and whether they were emulated.
    """

    files: int
    size_bytes: int
    samples: int
    largest_error: float | None
    warnings: tuple[str, ...]

    @property
    def summary(self) -> str:
        text = f"{self.files} files ({self.size_bytes / 1e6:.1f} MB) match their sha256"
        if self.largest_error is None:
            return f"{text}; golden samples not replayed"
        return f"{text}; {self.samples} golden samples replayed, largest difference {self.largest_error:.2g}"


def verify_bundle(directory: Path, *, replay: bool = True) -> VerifyReport:
    """Check every byte of a bundle, then load it here and replay its golden samples.

    Replaying starts from the texts where there are any, so that tokenizer and settings are checked with the model.

    Raises:
        BundleError: a file is missing, extra or changed; the model does not load here; an output differs by more
            than the tolerance.
        ToolchainError: this machine lacks what the target needs.
    """
    bundle = read_bundle(directory)
    check_files(bundle)
    manifest = bundle.manifest
    warnings = []
    if manifest.artifact.toolchain.emulated:
        warnings.append("it was made on an emulator: none of its figures was measured on a device")
    samples, largest = 0, None
    if replay:
        target = open_target(manifest.artifact.target)
        here = target.toolchain()
        changes = admit(manifest.artifact.toolchain, here, policy="warn")
        warnings += changes
        try:
            session = target.open(manifest.artifact, bundle.model_directory, manifest.candidate)
        except MeasureError as error:
            raise _unfit(bundle, error, _said(changes)) from error
        with contextlib.closing(session):
            samples, largest = replay_golden(bundle, session, changes)
    return VerifyReport(
        files=len(manifest.files) + 2,
        size_bytes=sum(s.size_bytes for s in manifest.files.values()),
        samples=samples,
        largest_error=largest,
        warnings=tuple(warnings),
    )


def check_files(bundle: Bundle) -> None:
    """Compare every byte of a bundle with its sums; milliseconds for each 10 MB.

    Raises:
        BundleError: names the first file that is missing, extra or changed.
    """
    directory, files = bundle.directory, bundle.manifest.files
    if any(is_unsafe(name) for name in files):
        raise BundleError(f"{directory}: the manifest names a file outside the bundle.")
    found, expected = set(file_names(directory)), {*files, MANIFEST, SUMS}
    if missing := sorted(expected - found):
        raise BundleError(f"{directory}: {missing[0]} is missing{_more(missing)}. Copy the bundle again.")
    if extra := sorted(found - expected):
        raise BundleError(f"{directory}: {extra[0]} does not belong to the bundle{_more(extra)}. Remove it.")
    for name, expected_sum in files.items():
        file = directory / name
        if file.is_symlink():
            raise BundleError(f"{directory}: {name} is a link; a bundle holds plain files. Copy the bundle again.")
        size = file.stat().st_size
        if size != expected_sum.size_bytes:
            raise BundleError(
                f"{directory}: {name} has {size} bytes instead of {expected_sum.size_bytes}. Copy the bundle again."
            )
        if file_digest(file) != expected_sum.sha256:
            raise BundleError(f"{directory}: {name} has another sha256: it is damaged. Copy the bundle again.")
    if (directory / SUMS).read_bytes() != sums_text(files, file_digest(directory / MANIFEST)).encode():
        raise BundleError(f"{directory}: {SUMS} differs from the manifest: it is damaged. Copy the bundle again.")


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


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


def _unfit(bundle: Bundle, error: MeasureError, where: str) -> BundleError:
    """A bundle has no candidate to blame: it cannot be served here."""
    return BundleError(f"{bundle.directory}: the model does not run on this machine: {error}{where}")


def _said(changes: Sequence[str]) -> str:
    return f" Differences: {'; '.join(changes)}." if changes else ""


def _check_feeds(bundle: Bundle, index: int, batch: GoldenBatch, preprocessor: Preprocessor) -> None:
    width = next(iter(batch.feeds.values())).shape[1]
    feeds = collate(preprocessor, encode(preprocessor, batch.texts), width)
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
