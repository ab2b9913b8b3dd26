"""A bundle: written from a sweep; made a version in the registry, which keeps it as whole as it is; and opened to
answer texts and arrays in this very process, without a service."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from workbench.api.opening import journal_of, named_candidate, opened, recommended_of, summary_of
from workbench.bundle.fingerprint import Policy
from workbench.bundle.golden import preprocessor_of
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.readme import description, provenance
from workbench.bundle.signing import SecretKey, only_key, trusted_keys_of
from workbench.bundle.verify import VerifyReport, check_bundle, check_files, replay_apart, verify_bundle
from workbench.bundle.write import check_free
from workbench.inputs.experiment import Experiment
from workbench.serve.refusals import Refusal
from workbench.serve.requests import fitted, input_rules, text_or_words
from workbench.serve.samples import (
    Answer,
    NotFinite,
    Padding,
    TextSample,
    Tokenizing,
    answers_for,
    finite,
    without_rows,
)
from workbench.serve.settings import Limits
from workbench.serve.worker import open_proved
from workbench.shipping.deployment import DeploymentSettings
from workbench.shipping.handover import bundle_contents, hand_over
from workbench.targets.base import Array, Session
from workbench.tracking.champion import open_versions
from workbench.tracking.releases import Act
from workbench.tracking.versions import Version, Versions
from workbench.values.candidate import Candidate
from workbench.values.errors import BundleError, ConfigError, MeasureError
from workbench.values.preprocess import collate


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle that was written and verified.

    Attributes:
        version: in the workspace's registry; None where it was not registered.
    """

    directory: Path
    candidate: Candidate
    report: VerifyReport
    version: Version | None


def export(
    experiment: Experiment | Path | str,
    to: Path | str,
    *,
    candidate: str | None = None,
    workspace: Path | str | None = None,
    allow_emulated: bool = False,
    secret: SecretKey | None = None,
    settings: DeploymentSettings | None = None,
    register: bool = True,
) -> Exported:
    """Write the production bundle of the recommended candidate, or of the one named, and verify it.

    Args:
        to: folder to create.
        candidate: id or its first digits, 'baseline', or a candidate JSON file; None for the recommended one.
        allow_emulated: permit a result that was not measured on a device.
        secret: key to sign the bundle with.
        settings: how the deployment files are written.
        register: make it a version in MLflow's Model Registry.

    Raises:
        ConfigError: no sweep, no such candidate, none recommended, or the folder exists.
        BundleError: what was written does not give its golden samples again.
        ToolchainError: a file of the sweep is damaged, or the folder cannot be written.
    """
    folder = Path(to)
    check_free(folder)
    with opened(experiment, workspace) as (question, bench):
        journal = journal_of(question)
        if candidate is not None:
            chosen = named_candidate(candidate, question)
        else:
            chosen = recommended_of(question, summary_of(question, journal))
        contents = bundle_contents(question, chosen, bench, journal)
    hand_over(folder, contents, allow_emulated=allow_emulated, secret=secret, settings=settings)
    report = verify_bundle(folder, trusted=None if secret is None else only_key(secret.public))
    version = register_bundle(folder, question.workspace) if register else None
    return Exported(directory=folder, candidate=chosen, report=report, version=version)


def register_bundle(bundle: Path, workspace: Path) -> Version:
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


def versions_of(workspace: Path, bundle: Bundle) -> contextlib.AbstractContextManager[Versions]:
    return open_versions(workspace, bundle.manifest.name, about=bundle.manifest.about)


def load_bundle(
    bundle: Path | str, *, trusted_keys: Path | str | None = None, policy: Policy = "refuse"
) -> LoadedBundle:
    """Open a bundle for predictions: check its signature and every byte, load it, replay its golden samples.

    Args:
        trusted_keys: file of public keys, one of which must have signed it; None for the one that
            WORKBENCH_TRUSTED_KEYS names, and no signature is asked for where that is not set either.
        policy: 'warn' to load it on another machine than it is for.

    Raises:
        BundleError: it is damaged, not signed as it must be, not for this machine, or gives other outputs here.
        ConfigError: the file of keys is wrong.
        ToolchainError: this machine lacks what the bundle needs.
    """
    if policy not in get_args(Policy):
        raise ConfigError(f"{policy!r} is none of {', '.join(get_args(Policy))}.", key="policy")
    read = read_bundle(Path(bundle))
    read.check_served_here()
    check_bundle(read, trusted_keys_of(None if trusted_keys is None else Path(trusted_keys)))
    read.check_model()
    replay_apart(read)
    session, facts = open_proved(read, read.manifest.service.max_batch_size, policy)
    return LoadedBundle(read, session, facts)


class LoadedBundle:
    """An open bundle, made by `load_bundle`; close it, or use it as a context manager.

    Answers are those of the service, from the same tokenizer, bins and batches. Several threads may use it: one batch
    runs at a time.

    Attributes:
        manifest: what the bundle says of itself: candidate, figures with intervals, provenance, labels.
        warnings: how this machine differs from the one the bundle's figures come from.
    """

    def __init__(self, bundle: Bundle, session: Session, facts: Mapping[str, Any]) -> None:
        self.manifest = bundle.manifest
        self.warnings: tuple[str, ...] = tuple(facts["changes"])
        self._session: Session | None = session
        self._lock = threading.Lock()
        self._preprocessor = preprocessor = preprocessor_of(bundle)
        self._tokenizing = None if preprocessor is None else Tokenizing(preprocessor)
        self._rules = input_rules(bundle.manifest, None if preprocessor is None else preprocessor.largest_id)
        self._padding = Padding(bundle.manifest)
        self._answers = answers_for(bundle.manifest)

    @property
    def emulated(self) -> bool:
        """Made on an emulator: nothing about it was measured on a device."""
        return self.manifest.artifact.toolchain.emulated

    def predict(self, texts: str | Sequence[str | Sequence[str]]) -> list[Answer]:
        """An answer for each text: label and scores, entities, or outputs, as `POST /predict` gives them.

        Args:
            texts: a text, or several; each a string or a list of words.

        Raises:
            ConfigError: the model takes no texts, or one is empty or too long to be a text.
            CandidateError: the model fails.
        """
        if self._preprocessor is None or self._tokenizing is None:
            raise ConfigError("this model takes arrays, not texts.", hint="Use run(inputs).")
        given: Sequence[str | Sequence[str]] = [texts] if isinstance(texts, str) else texts
        tokenizing, limits = self._tokenizing, Limits()
        samples: list[TextSample] = []
        bins: dict[int, list[int]] = {}
        answers: dict[int, Answer] = {}
        with _as_errors():
            for index, text in enumerate(given):
                checked = text_or_words(text if isinstance(text, str) else list(text), f"texts[{index}]", limits)
                samples.append(tokenizing.sample(checked))
                if not samples[-1].encoded.ids:
                    raise ConfigError(f"texts[{index}] becomes no token.")
                bins.setdefault(tokenizing.bin(samples[-1]), []).append(index)
            for members in bins.values():
                for rows in self._turns(len(members)):
                    batch = [samples[i] for i in members[rows]]
                    outputs = self._outputs(collate(self._preprocessor, [s.encoded for s in batch]), len(batch))
                    answers.update(zip(members[rows], self._answers(outputs, batch), strict=True))
        return [answers[i] for i in range(len(samples))]

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Outputs by name for arrays [rows, …] of the model's inputs, in batches of the service's size.

        Raises:
            ConfigError: a name, type, shape or value is not what the model takes.
            CandidateError: the model fails.
        """
        longest = None if self._preprocessor is None else self._preprocessor.bins[-1]
        with _as_errors():
            given = fitted({name: np.asarray(value) for name, value in inputs.items()}, self._rules, longest)
            feeds, sizes = self._padding.padded(given)
            parts = []
            for turn in self._turns(len(next(iter(feeds.values())))):
                batch = {name: array[turn] for name, array in feeds.items()}
                parts.append(self._outputs(batch, len(next(iter(batch.values())))))
            joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            return {name: finite(self._padding.cut(name, array, sizes)) for name, array in joined.items()}

    def close(self) -> None:
        """Give the model's memory back; what was predicted stays valid. Closing twice is no error."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> LoadedBundle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._session is not None else ", closed"
        return f"<{type(self).__name__} {self.manifest.name!r}, {self.manifest.candidate_id[:12]}{state}>"

    def _turns(self, rows: int) -> Iterator[slice]:
        size = self.manifest.service.max_batch_size
        return (slice(start, start + size) for start in range(0, rows, size))

    def _outputs(self, feeds: Mapping[str, Array], rows: int) -> Mapping[str, Array]:
        with self._lock:
            if self._session is None:
                raise ConfigError(f"{self.manifest.name} is closed.", hint="Load the bundle again.")
            outputs = self._session.run(feeds)
        if wrong := without_rows(outputs, rows):
            raise BundleError(f"output {wrong[0]!r} does not have one row for each sample.")
        return outputs


@contextlib.contextmanager
def _as_errors() -> Iterator[None]:
    """What a service refuses, and numbers that are none, as errors of this workbench."""
    try:
        yield
    except Refusal as refusal:
        raise ConfigError(refusal.message) from None
    except NotFinite:
        raise MeasureError("the model gave a number that is not finite.") from None
