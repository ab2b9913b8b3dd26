"""MLflow's Model Registry: every exported bundle a version of its experiment's model, and aliases for those that serve.

    champion    what production is to serve
    previous    what it served before, for a rollback; absent before the first change of champion

A version points to the whole bundle, logged among the artifacts of its candidate's run, so production can download it
from there. Its tags say where it comes from. `champion` moves the aliases and opens the registry. One process writes at
a time (`registry.lock`).
"""

from __future__ import annotations

import contextlib
import hashlib
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.tracking.releases import Act, Log, Release, append, log_file, mark_of, read_log
from workbench.tracking.run import flag
from workbench.tracking.store import find_runs, mlflow_errors, open_experiment
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

CHAMPION, PREVIOUS = "champion", "previous"
LOCK_WAIT_S = 60.0
_MARK = "workbench.releases"
_MANIFEST, _FOLDER = "manifest_sha256", "artifact_path"
_DESCRIPTION = 5000
"""Characters of a description that MLflow's database column holds."""
AGAIN = "Free space, or stop what holds mlruns/mlflow.db, then run the command again: nothing is registered twice."


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One bundle in the registry.

    Attributes:
        number: as MLflow counts, from 1.
        run_id, folder: where the bundle lies among the artifacts.
        aliases: sorted.
        tags: provenance, as it was registered, and what became of it.
    """

    name: str
    number: int
    run_id: str
    folder: str
    manifest_sha256: str
    aliases: tuple[str, ...]
    tags: Mapping[str, str]


class Versions:
    """The versions of one model. Made by `champion.open_versions`."""

    def __init__(self, client: MlflowClient, store: Path, name: str, about: str) -> None:
        self.name = name
        self.client, self._store, self._about = client, store, about

    def register(
        self,
        bundle: Path,
        *,
        manifest_sha256: str,
        candidate_id: str,
        tags: Mapping[str, str],
        description: str,
        act: Act = "registration",
    ) -> Version:
        """The version of a bundle, made when this manifest is not among them yet; so a second call changes nothing.

        The files go to the run of the candidate, or to a run of their own where no sweep of this store measured it.
        Where a version's files are gone they are put back.

        Args:
            act: what the log of releases calls it; a version has one such line.

        Raises:
            ToolchainError: the store cannot be written.
        """
        with self.writing():
            known = next((v for v in self.all() if v.manifest_sha256 == manifest_sha256), None)
            if known is not None:
                if not self._folder(known).is_dir():
                    self.client.log_artifacts(known.run_id, str(bundle), artifact_path=known.folder)
                self._note_registered(act, known)
                return known
            run_id = self._run_of(candidate_id, tags)
            folder = f"bundle-{manifest_sha256[:12]}"
            self.client.log_artifacts(run_id, str(bundle), artifact_path=folder)
            if self.model() is None:
                self.client.create_registered_model(self.name, description=self._about)
            made = self.client.create_model_version(
                self.name,
                f"runs:/{run_id}/{folder}",
                run_id=run_id,
                tags={**tags, _MANIFEST: manifest_sha256, _FOLDER: folder},
                description=description[:_DESCRIPTION],
            )
            version = self.version(int(made.version))
            self._note_registered(act, version)
            return version

    def all(self) -> list[Version]:
        """Oldest first."""
        with mlflow_errors(AGAIN):
            model = self.model()
            if model is None:
                return []
            found: list[ModelVersion] = []
            token: str | None = None
            while True:
                page = self.client.search_model_versions(f"name={_quoted(self.name)}", page_token=token)
                found += page
                token = page.token
                if not token:
                    break
        return sorted((_version(v, model) for v in found), key=lambda version: version.number)

    def version(self, number: int) -> Version:
        """Raises ConfigError: there is none of that number."""
        for version in self.all():
            if version.number == number:
                return version
        raise ConfigError(f"{self.name!r} has no version {number}.", hint="See the registry: workbench ui")

    def with_alias(self, alias: str) -> Version | None:
        return next((version for version in self.all() if alias in version.aliases), None)

    def bundle(self, version: Version) -> Path:
        """The bundle where MLflow keeps it; to be read, never changed.

        Raises:
            ToolchainError: it is gone.
        """
        with mlflow_errors(AGAIN):
            folder = self._folder(version)
        if not version.folder or not folder.is_dir():
            raise ToolchainError(
                f"version {version.number} of {version.name!r} has no bundle at {folder}: its artifacts were deleted "
                "or moved. Restore them, or name the folder of the bundle instead."
            )
        return folder

    def keep_verdict(self, version: Version, *, passed: bool, text: str) -> None:
        """Keep a verdict on a version: the whole of it among the run's artifacts, its outcome as a tag."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        file = f"verdicts/{version.folder.removeprefix('bundle-')}-{stamp}.json"
        with mlflow_errors(AGAIN):
            self.client.log_text(version.run_id, text, file)
            self.tag(version.number, "promotion_checks", "passed" if passed else "failed")
            self.tag(version.number, "promotion_verdict", file)

    def note_refused(self, act: Act, version: Version, reason: str, verdict: str = "") -> None:
        """A line for what was asked and not done."""
        with self.writing():
            self._note_unmoved(act, version, verdict="failed", verdict_sha256=sha256_of(verdict), reason=reason)

    def releases(self) -> Log:
        """The log of releases, checked against the registry's mark.

        Raises:
            ToolchainError: it cannot be read.
        """
        with mlflow_errors(AGAIN):
            return read_log(self.log_file, mark_of(self.model_tag(_MARK)))

    @property
    def log_file(self) -> Path:
        return log_file(self._store, self.name)

    def note(self, release: Release) -> None:
        mark = append(self.log_file, self.name, release, mark_of(self.model_tag(_MARK)))
        self.client.set_registered_model_tag(self.name, _MARK, str(mark))

    def _note_registered(self, act: Act, version: Version) -> None:
        """Once for each version: a kill may have come between it and its line."""
        for line in read_log(self.log_file, None).lines:
            said = (line.content or {"release": {}})["release"]
            if said.get("act") in ("export", "registration") and said.get("manifest_sha256") == version.manifest_sha256:
                return
        self._note_unmoved(act, version)

    def _note_unmoved(self, act: Act, version: Version, **words: str) -> None:
        champion = number_of(self.with_alias(CHAMPION))
        self.note(
            Release(
                act=act,
                version=version.number,
                manifest_sha256=version.manifest_sha256,
                champion_before=champion,
                champion_after=champion,
                **words,
            )
        )

    def _folder(self, version: Version) -> Path:
        place = str(self.client.get_run(version.run_id).info.artifact_uri)
        return Path(urllib.request.url2pathname(place.removeprefix("file://"))) / version.folder

    def model_tag(self, key: str) -> str:
        model = self.model()
        return "" if model is None else str(model.tags.get(key, ""))

    def tag(self, number: int, key: str, value: str) -> None:
        self.client.set_model_version_tag(self.name, str(number), key, value)

    def model(self) -> RegisteredModel | None:
        return _model_of(self.client, self.name)

    def _run_of(self, candidate_id: str, tags: Mapping[str, str]) -> str:
        experiment_id = open_experiment(self.client, self.name, self._store / "artifacts", self._about)
        found = find_runs(self.client, experiment_id, f"tags.candidate = '{candidate_id}'")
        found.sort(key=lambda run: run.data.tags.get("kind") == "candidate")
        if found:
            return str(found[-1].info.run_id)
        emulated = "[emulated] " if tags.get("emulated") == flag(True) else ""
        own = {"kind": "bundle", "candidate": candidate_id, "emulated": tags.get("emulated", flag(False))}
        run = self.client.create_run(experiment_id, tags=own, run_name=f"{emulated}bundle {candidate_id[:6]}")
        self.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Alone with the registry; the kernel releases the lock when the process dies, however it dies."""
        with lock_file(self._store / "registry.lock", wait_s=LOCK_WAIT_S) as lock:
            if not lock.held:
                raise ToolchainError(
                    f"another command has been changing the registry in {self._store} for {LOCK_WAIT_S:.0f} s. "
                    "Wait for it and run this one again."
                )
            with mlflow_errors(AGAIN):
                yield


def has_model(client: MlflowClient, name: str) -> bool:
    """Whether a bundle of an experiment was ever registered. Call it inside `mlflow_errors`."""
    return _model_of(client, name) is not None


def _model_of(client: MlflowClient, name: str) -> RegisteredModel | None:
    found = client.search_registered_models(f"name={_quoted(name)}")
    return found[0] if found else None


def _version(found: ModelVersion, model: RegisteredModel) -> Version:
    number, tags = int(found.version), dict(found.tags)
    return Version(
        name=str(found.name),
        number=number,
        run_id=str(found.run_id),
        folder=tags.get(_FOLDER, ""),
        manifest_sha256=tags.get(_MANIFEST, ""),
        aliases=tuple(sorted(alias for alias, of in model.aliases.items() if int(of) == number)),
        tags=tags,
    )


def _quoted(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def number_of(version: Version | None) -> int | None:
    return None if version is None else version.number


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
