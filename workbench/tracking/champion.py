"""Champion and previous: moved by a promotion or a rollback, in an order that a kill at any moment leaves recoverable.

What is going to happen is written down first (a tag of the registered model, then a line of the log of releases),
champion moves by one write, previous follows; no alias is taken away before the other stands. Whoever opens the
registry next finishes what was begun.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.tracking.releases import Release
from workbench.tracking.store import mlflow_errors, open_client, prepare
from workbench.tracking.versions import AGAIN, CHAMPION, PREVIOUS, Version, Versions, number_of, sha256_of
from workbench.values.errors import ConfigError

_log = logging.getLogger(__name__)

_MOVING, _REPLACED = "workbench.moving", "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What champion and previous mean after a promotion or a rollback; `before` was champion until then."""

    champion: Version
    previous: Version | None
    before: Version | None


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
    with mlflow_errors(AGAIN):
        versions = Versions(open_client(store / "mlflow.db"), store, name, about)
    if done := recover(versions):
        _log.warning("%s: %s.", name, done)
    yield versions


def promote(
    versions: Versions, version: Version, *, over: Version | None, former: Version | None = None, verdict: str = ""
) -> Moved:
    """Make a version the champion, and what was champion the previous one.

    Args:
        over: what it was compared with as champion; None when there was no champion.
        former: what becomes previous where there was no champion; without it previous stays what it is.
        verdict: text of the verdict that let it pass; its digest goes into the log of releases.

    Raises:
        ConfigError: another version became champion meanwhile; nothing was moved.
    """
    with versions.writing():
        _finish_interrupted(versions)
        now = versions.with_alias(CHAMPION)
        if number_of(now) != number_of(over):
            raise ConfigError(
                f"the champion of {versions.name!r} changed while this bundle was compared: it is "
                f"{_called(now)}, it was {_called(over)}.",
                hint="Nothing was moved. Compare with the new one: run the command again.",
            )
        if now is not None and now.number == version.number:
            raise ConfigError(f"version {version.number} of {versions.name!r} is the champion already.")
        before = now or former
        kept = before or versions.with_alias(PREVIOUS)
        versions.tag(version.number, _REPLACED, str(before.number) if before else "")
        versions.tag(version.number, "promoted_at", _now())
        _move(
            versions,
            Release(
                act="promotion",
                version=version.number,
                manifest_sha256=version.manifest_sha256,
                champion_before=number_of(now),
                champion_after=version.number,
                verdict="passed",
                verdict_sha256=sha256_of(verdict),
            ),
            kept.number if kept is not None and kept.number != version.number else None,
        )
        return Moved(champion=versions.version(version.number), previous=versions.with_alias(PREVIOUS), before=now)


def restorable(versions: Versions) -> tuple[Version | None, Version]:
    """The champion, and the version that a rollback makes champion.

    Raises:
        ConfigError: there is nothing to go back to.
    """
    found = versions.all()
    champion, previous = (next((v for v in found if alias in v.aliases), None) for alias in (CHAMPION, PREVIOUS))
    if previous is not None and (champion is None or previous.number != champion.number):
        return champion, previous
    if champion is None:
        raise ConfigError(f"{versions.name!r} has no champion.", hint="Promote a bundle first: workbench promote")
    replaced = champion.tags.get(_REPLACED, "")
    why = f"version {champion.number} is the only one that was champion"
    if replaced and replaced not in {str(version.number) for version in found}:
        why = f"version {replaced}, which version {champion.number} replaced, was deleted"
    raise ConfigError(
        f"{versions.name!r} has no previous version: {why}. Nothing was moved.", hint="Promote another bundle instead."
    )


def rollback(versions: Versions, to: Version, *, over: Version | None, reason: str = "") -> Moved:
    """Make the previous version champion again; previous becomes what that one had replaced, if anything.

    Args:
        to, over: what `restorable` gave, and was checked since.
        reason: what was checked, for the log of releases.

    Raises:
        ConfigError: either changed meanwhile; nothing was moved.
    """
    with versions.writing():
        _finish_interrupted(versions)
        champion, previous = restorable(versions)
        if (number_of(champion), previous.number) != (number_of(over), to.number):
            raise ConfigError(
                f"champion and previous of {versions.name!r} changed while version {to.number} was checked: they are "
                f"{_called(champion)} and {_called(previous)}.",
                hint="Nothing was moved. Look at the registry, and run the command again.",
            )
        earlier = previous.tags.get(_REPLACED, "")
        known = {version.number for version in versions.all()} - {number_of(champion), previous.number}
        if champion is not None:
            versions.tag(champion.number, "rolled_back_at", _now())
        _move(
            versions,
            Release(
                act="rollback",
                version=previous.number,
                manifest_sha256=previous.manifest_sha256,
                champion_before=number_of(champion),
                champion_after=previous.number,
                verdict="passed",
                reason=reason,
            ),
            int(earlier) if earlier.isdecimal() and int(earlier) in known else None,
        )
        return Moved(
            champion=versions.version(previous.number), previous=versions.with_alias(PREVIOUS), before=champion
        )


def recover(versions: Versions) -> str:
    """Finish a move of aliases that was killed; says in words what was done, nothing when there was none."""
    with mlflow_errors(AGAIN):
        if not versions.model_tag(_MOVING):
            return ""
    with versions.writing():  # whoever is moving them just now holds the lock until it is done
        return _finish_interrupted(versions)


def _finish_interrupted(versions: Versions) -> str:
    model, text = versions.model(), versions.model_tag(_MOVING)
    if model is None or not text:
        return ""
    try:
        intent = json.loads(text)
        champion, previous, before = int(intent["champion"]), intent["previous"], intent.get("before")
    except (ValueError, TypeError, KeyError):
        versions.client.delete_registered_model_tag(versions.name, _MOVING)
        return "the registry's note of a change of champion made no sense and was removed; no alias was moved"
    now = model.aliases.get(CHAMPION)
    moved = str(now) == str(champion)
    known = {version.number: version for version in versions.all()}
    if moved and (previous is None or previous in known):
        _set_previous(versions, previous)
    elif moved and str(model.aliases.get(PREVIOUS)) == str(champion):  # what was to follow is deleted
        _set_previous(versions, None)
    said = f"a change of champion to version {champion} was interrupted before it took place"
    if moved:
        said = f"finished the change of champion to version {champion}, which had been interrupted"
    versions.note(
        Release(
            act="recovery",
            version=champion,
            manifest_sha256=known[champion].manifest_sha256 if champion in known else "",
            champion_before=before if moved else now and int(now),
            champion_after=now and int(now),
            reason=said,
        )
    )
    versions.client.delete_registered_model_tag(versions.name, _MOVING)
    return said


def _move(versions: Versions, release: Release, previous: int | None) -> None:
    """Log first: there is no move without its line, and a line without its move is followed by a recovery's."""
    intent = {"champion": release.champion_after, "previous": previous, "before": release.champion_before}
    versions.client.set_registered_model_tag(versions.name, _MOVING, json.dumps(intent))
    versions.note(release)
    versions.client.set_registered_model_alias(versions.name, CHAMPION, str(release.champion_after))
    _set_previous(versions, previous)
    versions.client.delete_registered_model_tag(versions.name, _MOVING)


def _set_previous(versions: Versions, number: int | None) -> None:
    if number is None:
        versions.client.delete_registered_model_alias(versions.name, PREVIOUS)
    else:
        versions.client.set_registered_model_alias(versions.name, PREVIOUS, str(number))


def _called(version: Version | None) -> str:
    return "none" if version is None else f"version {version.number}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
