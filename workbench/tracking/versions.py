"""MLflow's Model Registry: every exported bundle a version of its experiment's model, and aliases for those that serve.

    champion    what production is to serve
    previous    what it served before, for a rollback; absent before the first change of champion

A version points to the whole bundle, logged among the artifacts of its candidate's run, so production can download it
from there. Its tags say where it comes from. `champion` moves the aliases and opens the registry. In a workspace one
process writes at a time (`registry.lock`); a server has no lock, and of two who move an alias at once the later counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from workbench.tracking.releases import Act, Log, Release, checked, kept_lines, line_of, text_of
from workbench.tracking.run import USER, flag, whose
from workbench.tracking.server import Place, patient, without_password
from workbench.tracking.store import find_runs, make_model, mlflow_errors, model_of, open_experiment, versions_named
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file
from workbench.values.system.scratch import scratch_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

CHAMPION, PREVIOUS = "champion", "previous"
LOCK_WAIT_S = 60.0
_MANIFEST, _FOLDER = "manifest_sha256", "artifact_path"
_DESCRIPTION = 5000
"""Characters of a description that MLflow's database column holds."""
_LINE, _SOURCE = "line", "workbench:/releases"
"""The tag that a line of the log is; and the source that a version must name, which a line has none of."""
REPEAT = "Then run the command again: nothing is registered twice."


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

    def __init__(self, client: MlflowClient, place: Place, name: str, about: str) -> None:
        self.name, self._log = name, f"{name}.releases"
        self.client, self._place, self._about = client, place, about
        self._kept = () if place.server else kept_lines(place.store, name)
        self._fetched: dict[int, Path] = {}

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
                if not self._files_there(known):
                    self._upload(known.run_id, bundle, known.folder)
                self._note_registered(act, known)
                return known
            run_id = self._run_of(candidate_id, tags)
            folder = f"bundle-{manifest_sha256[:12]}"
            self._upload(run_id, bundle, folder)
            make_model(self.client, self.name, self._about)
            made = self.client.create_model_version(
                self.name,
                f"runs:/{run_id}/{folder}",
                run_id=run_id,
                tags={**tags, _MANIFEST: manifest_sha256, _FOLDER: folder},
                description=description[:_DESCRIPTION],
                await_creation_for=0,
            )
            version = self.version(int(made.version))
            self._note_registered(act, version)
            return version

    def all(self) -> list[Version]:
        """Oldest first."""
        with self.errors():
            model = self.model()
            if model is None:
                return []
            found = [_version(v, model) for v in versions_named(self.client, self.name)]
        return sorted(found, key=lambda version: version.number)

    def version(self, number: int) -> Version:
        """Raises ConfigError: there is none of that number."""
        for version in self.all():
            if version.number == number:
                return version
        raise ConfigError(f"{self.name!r} has no version {number}.", hint="See the registry: workbench ui")

    def with_alias(self, alias: str) -> Version | None:
        return next((version for version in self.all() if alias in version.aliases), None)

    def bundle(self, version: Version) -> Path:
        """The bundle where MLflow keeps it, or as it was just fetched from the server; to be read, never changed.

        Raises:
            ToolchainError: it is gone.
        """
        with self.errors():
            there = bool(version.folder) and self._files_there(version)
            if there:
                return self._fetch(version) if self._place.server else self._folder(version)
            place = self.client.get_run(version.run_id).info.artifact_uri
        raise ToolchainError(
            f"version {version.number} of {version.name!r} has no bundle at {place}/{version.folder}: its artifacts "
            "were deleted or moved. Restore them, or name the folder of the bundle instead."
        )

    def keep_verdict(self, version: Version, *, passed: bool, text: str) -> None:
        """Keep a verdict on a version: the whole of it among the run's artifacts, its outcome as a tag."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        file = f"verdicts/{version.folder.removeprefix('bundle-')}-{stamp}.json"
        with self.errors():
            self.client.log_text(version.run_id, text, file)
            self.tag(version.number, "promotion_checks", "passed" if passed else "failed")
            self.tag(version.number, "promotion_verdict", file)

    def note_refused(self, act: Act, version: Version, reason: str, verdict: str = "") -> None:
        """A line for what was asked and not done."""
        with self.writing():
            self.note(act, version, verdict="failed", verdict_sha256=sha256_of(verdict), reason=reason)

    def releases(self) -> Log:
        """The log of releases, checked.

        Raises:
            ToolchainError: it cannot be read.
        """
        with self.errors():
            found = sorted(versions_named(self.client, self._log), key=lambda version: int(version.version))
            return checked([*self._kept, *(line_of(version.tags.get(_LINE, "").encode()) for version in found)])

    @property
    def log_name(self) -> str:
        """Where the log is, for messages."""
        return f"{without_password(self._place.registry) or self._place.database}, model {self._log}"

    def note(self, act: Act, version: Version | None, *moved: int | None, **said: str) -> None:
        """A line of the log; inside of `writing`.

        Args:
            version: that it is about; None for the champion, of which there is none.
            moved: who was champion and who is; the same one where they are not given.
            said: fields of `Release`.
        """
        before, after = moved or [number_of(self.with_alias(CHAMPION))] * 2
        number, manifest = (before or 0, "") if version is None else (version.number, version.manifest_sha256)
        release = Release(
            act=act, version=number, manifest_sha256=manifest, champion_before=before, champion_after=after, **said
        )
        said_of_it = f"The log of releases of {self.name}, written by the workbench: `workbench releases {self.name}`"
        make_model(self.client, self._log, said_of_it)
        line = text_of(self.name, release, self.releases().lines)
        self.client.create_model_version(
            self._log, _SOURCE, tags={_LINE: line}, description=str(release), await_creation_for=0
        )

    def _note_registered(self, act: Act, version: Version) -> None:
        """Once for each version: a kill may have come between it and its line."""
        said = (line["release"] for line in self.releases().lines)
        acts = {one.get("act") for one in said if one.get("manifest_sha256") == version.manifest_sha256}
        if acts.isdisjoint(("export", "registration")):
            self.note(act, version)

    def _upload(self, run_id: str, bundle: Path, folder: str) -> None:
        with patient():
            self.client.log_artifacts(run_id, str(bundle), artifact_path=folder)

    def _files_there(self, version: Version) -> bool:
        if not self._place.server:
            return self._folder(version).is_dir()
        return bool(self.client.list_artifacts(version.run_id, version.folder))

    def _fetch(self, version: Version) -> Path:
        """The bundle as the server has it now, in the workspace's own folder; once for each command."""
        if version.number not in self._fetched:
            kept = self._place.store.parent / ".workbench" / "bundles" / quote(self.name, safe="")
            kept.mkdir(parents=True, exist_ok=True)
            with scratch_folder("fetched", inside=kept) as folder, patient():
                found = Path(self.client.download_artifacts(version.run_id, version.folder, str(folder)))
                to = kept / f"{version.number}-{version.folder.removeprefix('bundle-')}"
                if to.exists():
                    shutil.rmtree(to)
                found.rename(to)
            self._fetched[version.number] = to
        return self._fetched[version.number]

    def _folder(self, version: Version) -> Path:
        place = str(self.client.get_run(version.run_id).info.artifact_uri)
        return Path(urllib.request.url2pathname(place.removeprefix("file://"))) / version.folder

    def tag(self, number: int, key: str, value: str) -> None:
        self.client.set_model_version_tag(self.name, str(number), key, value)

    def alias(self, alias: str, number: int) -> None:
        self.client.set_registered_model_alias(self.name, alias, str(number))

    def model(self) -> RegisteredModel | None:
        return model_of(self.client, self.name)

    def _run_of(self, candidate_id: str, tags: Mapping[str, str]) -> str:
        artifacts = None if self._place.server else self._place.artifacts
        experiment_id = open_experiment(self.client, self.name, artifacts, self._about)
        found = find_runs(self.client, experiment_id, f"tags.candidate = '{candidate_id}'")
        found.sort(key=lambda run: run.data.tags.get("kind") == "candidate")
        if found:
            return str(found[-1].info.run_id)
        emulated = "[emulated] " if tags.get("emulated") == flag(True) else ""
        own = {USER: whose()} if self._place.server else {}
        own |= {"kind": "bundle", "candidate": candidate_id, "emulated": tags.get("emulated", flag(False))}
        run = self.client.create_run(experiment_id, tags=own, run_name=f"{emulated}bundle {candidate_id[:6]}")
        self.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Alone with a workspace's registry; the kernel releases the lock when the process dies, however it dies."""
        with contextlib.ExitStack() as stack:
            lock = self._place.store / "registry.lock"
            if not self._place.server and not stack.enter_context(lock_file(lock, wait_s=LOCK_WAIT_S)).held:
                raise ToolchainError(
                    f"another command has been changing the registry in {self._place.store} for {LOCK_WAIT_S:.0f} s. "
                    "Wait for it and run this one again."
                )
            with self.errors():
                yield

    def errors(self) -> contextlib.AbstractContextManager[None]:
        return mlflow_errors(self._place, REPEAT)


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


def number_of(version: Version | None) -> int | None:
    return None if version is None else version.number


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
