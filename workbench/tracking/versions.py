"""MLflow's Model Registry: every exported bundle a version of its experiment's model, and aliases for those that serve.

    champion    what production is to serve
    previous    what it served before, for a rollback; absent before the first change of champion

A version points to the whole bundle, logged among the artifacts of its candidate's run, so production can download it
from there. Its tags say where it comes from. Aliases move in an order that a kill at any moment leaves recoverable:
what is going to happen is written down first (a tag of the registered model, then a line of the log of releases),
champion moves by one write, previous follows; no alias is taken away before the other stands. Whoever opens the
registry next finishes what was begun. One process writes at a time (`registry.lock`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.tracking.releases import Act, Log, Release, append, log_file, mark_of, read_log
from workbench.tracking.run import flag
from workbench.tracking.store import find_runs, mlflow_errors, open_client, open_experiment, prepare
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

_log = logging.getLogger(__name__)

CHAMPION, PREVIOUS = "champion", "previous"

LOCK_WAIT_S = 60.0

_MOVING, _MARK = "workbench.moving", "workbench.releases"
_MANIFEST, _FOLDER = "manifest_sha256", "artifact_path"
_REPLACED = "replaced"
_DESCRIPTION = 5000
"""Characters of a description that MLflow's database column holds."""
_AGAIN = "Free space, or stop what holds mlruns/mlflow.db, then run the command again: nothing is registered twice."


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What champion and previous mean after a promotion or a rollback; `before` was champion until then."""

    champion: Version
    previous: Version | None
    before: Version | None


class Versions:
    """The versions of one model. Made by `open_versions`."""

    def __init__(self, client: MlflowClient, store: Path, name: str, about: str) -> None:
        self.name = name
        self._client, self._store, self._about = client, store, about

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
        with self._writing():
            known = next((v for v in self.all() if v.manifest_sha256 == manifest_sha256), None)
            if known is not None:
                if not self._folder(known).is_dir():
                    self._client.log_artifacts(known.run_id, str(bundle), artifact_path=known.folder)
                self._note_registered(act, known)
                return known
            run_id = self._run_of(candidate_id, tags)
            folder = f"bundle-{manifest_sha256[:12]}"
            self._client.log_artifacts(run_id, str(bundle), artifact_path=folder)
            if self._model() is None:
                self._client.create_registered_model(self.name, description=self._about)
            made = self._client.create_model_version(
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
        with mlflow_errors(_AGAIN):
            model = self._model()
            if model is None:
                return []
            found: list[ModelVersion] = []
            token: str | None = None
            while True:
                page = self._client.search_model_versions(f"name={_quoted(self.name)}", page_token=token)
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
        with mlflow_errors(_AGAIN):
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
        with mlflow_errors(_AGAIN):
            self._client.log_text(version.run_id, text, file)
            self._tag(version.number, "promotion_checks", "passed" if passed else "failed")
            self._tag(version.number, "promotion_verdict", file)

    def promote(
        self, version: Version, *, over: Version | None, former: Version | None = None, verdict: str = ""
    ) -> Moved:
        """Make a version the champion, and what was champion the previous one.

        Args:
            over: what it was compared with as champion; None when there was no champion.
            former: what becomes previous where there was no champion; without it previous stays what it is.
            verdict: text of the verdict that let it pass; its digest goes into the log of releases.

        Raises:
            ConfigError: another version became champion meanwhile; nothing was moved.
        """
        with self._writing():
            self._finish_interrupted()
            now = self.with_alias(CHAMPION)
            if _number(now) != _number(over):
                raise ConfigError(
                    f"the champion of {self.name!r} changed while this bundle was compared: it is "
                    f"{_called(now)}, it was {_called(over)}.",
                    hint="Nothing was moved. Compare with the new one: run the command again.",
                )
            if now is not None and now.number == version.number:
                raise ConfigError(f"version {version.number} of {self.name!r} is the champion already.")
            before = now or former
            kept = before or self.with_alias(PREVIOUS)
            self._tag(version.number, _REPLACED, str(before.number) if before else "")
            self._tag(version.number, "promoted_at", _now())
            self._move(
                Release(
                    act="promotion",
                    version=version.number,
                    manifest_sha256=version.manifest_sha256,
                    champion_before=_number(now),
                    champion_after=version.number,
                    verdict="passed",
                    verdict_sha256=_sha256(verdict),
                ),
                kept.number if kept is not None and kept.number != version.number else None,
            )
            return Moved(champion=self.version(version.number), previous=self.with_alias(PREVIOUS), before=now)

    def restorable(self) -> tuple[Version | None, Version]:
        """The champion, and the version that a rollback makes champion.

        Raises:
            ConfigError: there is nothing to go back to.
        """
        found = self.all()
        champion, previous = (next((v for v in found if alias in v.aliases), None) for alias in (CHAMPION, PREVIOUS))
        if previous is not None and (champion is None or previous.number != champion.number):
            return champion, previous
        if champion is None:
            raise ConfigError(f"{self.name!r} has no champion.", hint="Promote a bundle first: workbench promote")
        replaced = champion.tags.get(_REPLACED, "")
        why = f"version {champion.number} is the only one that was champion"
        if replaced and replaced not in {str(version.number) for version in found}:
            why = f"version {replaced}, which version {champion.number} replaced, was deleted"
        raise ConfigError(
            f"{self.name!r} has no previous version: {why}. Nothing was moved.", hint="Promote another bundle instead."
        )

    def rollback(self, to: Version, *, over: Version | None, reason: str = "") -> Moved:
        """Make the previous version champion again; previous becomes what that one had replaced, if anything.

        Args:
            to, over: what `restorable` gave, and was checked since.
            reason: what was checked, for the log of releases.

        Raises:
            ConfigError: either changed meanwhile; nothing was moved.
        """
        with self._writing():
            self._finish_interrupted()
            champion, previous = self.restorable()
            if (_number(champion), previous.number) != (_number(over), to.number):
                raise ConfigError(
                    f"champion and previous of {self.name!r} changed while version {to.number} was checked: they are "
                    f"{_called(champion)} and {_called(previous)}.",
                    hint="Nothing was moved. Look at the registry, and run the command again.",
                )
            earlier = previous.tags.get(_REPLACED, "")
            known = {version.number for version in self.all()} - {_number(champion), previous.number}
            if champion is not None:
                self._tag(champion.number, "rolled_back_at", _now())
            self._move(
                Release(
                    act="rollback",
                    version=previous.number,
                    manifest_sha256=previous.manifest_sha256,
                    champion_before=_number(champion),
                    champion_after=previous.number,
                    verdict="passed",
                    reason=reason,
                ),
                int(earlier) if earlier.isdecimal() and int(earlier) in known else None,
            )
            return Moved(champion=self.version(previous.number), previous=self.with_alias(PREVIOUS), before=champion)

    def note_refused(self, act: Act, version: Version, reason: str, verdict: str = "") -> None:
        """A line for what was asked and not done."""
        with self._writing():
            self._note_unmoved(act, version, verdict="failed", verdict_sha256=_sha256(verdict), reason=reason)

    def releases(self) -> Log:
        """The log of releases, checked against the registry's mark.

        Raises:
            ToolchainError: it cannot be read.
        """
        with mlflow_errors(_AGAIN):
            return read_log(self.log_file, mark_of(self._model_tag(_MARK)))

    @property
    def log_file(self) -> Path:
        return log_file(self._store, self.name)

    def recover(self) -> str:
        """Finish a move of aliases that was killed; says in words what was done, nothing when there was none."""
        with mlflow_errors(_AGAIN):
            if not self._model_tag(_MOVING):
                return ""
        with self._writing():  # whoever is moving them just now holds the lock until it is done
            return self._finish_interrupted()

    def _finish_interrupted(self) -> str:
        model, text = self._model(), self._model_tag(_MOVING)
        if model is None or not text:
            return ""
        try:
            intent = json.loads(text)
            champion, previous, before = int(intent["champion"]), intent["previous"], intent.get("before")
        except (ValueError, TypeError, KeyError):
            self._client.delete_registered_model_tag(self.name, _MOVING)
            return "the registry's note of a change of champion made no sense and was removed; no alias was moved"
        now = model.aliases.get(CHAMPION)
        moved = str(now) == str(champion)
        versions = {version.number: version for version in self.all()}
        if moved and (previous is None or previous in versions):
            self._set_previous(previous)
        elif moved and str(model.aliases.get(PREVIOUS)) == str(champion):  # what was to follow is deleted
            self._set_previous(None)
        said = f"a change of champion to version {champion} was interrupted before it took place"
        if moved:
            said = f"finished the change of champion to version {champion}, which had been interrupted"
        self._note(
            Release(
                act="recovery",
                version=champion,
                manifest_sha256=versions[champion].manifest_sha256 if champion in versions else "",
                champion_before=before if moved else now and int(now),
                champion_after=now and int(now),
                reason=said,
            )
        )
        self._client.delete_registered_model_tag(self.name, _MOVING)
        return said

    def _move(self, release: Release, previous: int | None) -> None:
        """Log first: there is no move without its line, and a line without its move is followed by a recovery's."""
        intent = {"champion": release.champion_after, "previous": previous, "before": release.champion_before}
        self._client.set_registered_model_tag(self.name, _MOVING, json.dumps(intent))
        self._note(release)
        self._client.set_registered_model_alias(self.name, CHAMPION, str(release.champion_after))
        self._set_previous(previous)
        self._client.delete_registered_model_tag(self.name, _MOVING)

    def _note(self, release: Release) -> None:
        mark = append(self.log_file, self.name, release, mark_of(self._model_tag(_MARK)))
        self._client.set_registered_model_tag(self.name, _MARK, str(mark))

    def _note_registered(self, act: Act, version: Version) -> None:
        """Once for each version: a kill may have come between it and its line."""
        for line in read_log(self.log_file, None).lines:
            said = (line.content or {"release": {}})["release"]
            if said.get("act") in ("export", "registration") and said.get("manifest_sha256") == version.manifest_sha256:
                return
        self._note_unmoved(act, version)

    def _note_unmoved(self, act: Act, version: Version, **words: str) -> None:
        champion = _number(self.with_alias(CHAMPION))
        self._note(
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
        place = str(self._client.get_run(version.run_id).info.artifact_uri)
        return Path(urllib.request.url2pathname(place.removeprefix("file://"))) / version.folder

    def _set_previous(self, number: int | None) -> None:
        if number is None:
            self._client.delete_registered_model_alias(self.name, PREVIOUS)
        else:
            self._client.set_registered_model_alias(self.name, PREVIOUS, str(number))

    def _model_tag(self, key: str) -> str:
        model = self._model()
        return "" if model is None else str(model.tags.get(key, ""))

    def _tag(self, number: int, key: str, value: str) -> None:
        self._client.set_model_version_tag(self.name, str(number), key, value)

    def _model(self) -> RegisteredModel | None:
        return _model_of(self._client, self.name)

    def _run_of(self, candidate_id: str, tags: Mapping[str, str]) -> str:
        experiment_id = open_experiment(self._client, self.name, self._store / "artifacts", self._about)
        found = find_runs(self._client, experiment_id, f"tags.candidate = '{candidate_id}'")
        found.sort(key=lambda run: run.data.tags.get("kind") == "candidate")
        if found:
            return str(found[-1].info.run_id)
        emulated = "[emulated] " if tags.get("emulated") == flag(True) else ""
        own = {"kind": "bundle", "candidate": candidate_id, "emulated": tags.get("emulated", flag(False))}
        run = self._client.create_run(experiment_id, tags=own, run_name=f"{emulated}bundle {candidate_id[:6]}")
        self._client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Alone with the registry; the kernel releases the lock when the process dies, however it dies."""
        with lock_file(self._store / "registry.lock", wait_s=LOCK_WAIT_S) as lock:
            if not lock.held:
                raise ToolchainError(
                    f"another command has been changing the registry in {self._store} for {LOCK_WAIT_S:.0f} s. "
                    "Wait for it and run this one again."
                )
            with mlflow_errors(_AGAIN):
                yield


@contextlib.contextmanager
def open_versions(workspace: Path, name: str, *, about: str = "", create: bool = True) -> Iterator[Versions]:
    """The versions of an experiment's model in the workspace's store, after finishing what a kill interrupted.

    Args:
        create: make the store when there is none.

    Raises:
        ConfigError: there is no store, and none is to be made.
        ToolchainError: the store cannot be used.
    """
    store = workspace.resolve() / "mlruns"
    if not create and not (store / "mlflow.db").exists():
        raise ConfigError(
            f"{store / 'mlflow.db'} does not exist: nothing was registered here.",
            hint="Name the folder with --workspace.",
        )
    prepare(store)
    with mlflow_errors(_AGAIN):
        versions = Versions(open_client(store / "mlflow.db"), store, name, about)
    if done := versions.recover():
        _log.warning("%s: %s.", name, done)
    yield versions


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


def _number(version: Version | None) -> int | None:
    return None if version is None else version.number


def _called(version: Version | None) -> str:
    return "none" if version is None else f"version {version.number}"


def _quoted(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
