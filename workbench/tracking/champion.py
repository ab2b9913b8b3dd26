"""Champion and previous: moved by a promotion or a rollback, in an order that a kill at any moment leaves recoverable.

The alias champion is the one write by which it moves. The tag `replaced` of each version, written before, says what
previous is while that one is champion; the alias previous and the log of releases follow. Whoever opens the registry
next and finds that the log does not say what stands makes up for it (`recover`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.tracking.releases import Act, Line
from workbench.tracking.server import if_permitted, place_of, without_password
from workbench.tracking.store import client_of, mlflow_errors, prepare
from workbench.tracking.versions import (
    CHAMPION,
    PREVIOUS,
    REPEAT,
    Version,
    Versions,
    number_of,
    sha256_of,
)
from workbench.values.errors import ConfigError

_log = logging.getLogger(__name__)

_REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What champion and previous mean after a promotion or a rollback; `before` was champion until then."""

    champion: Version
    previous: Version | None
    before: Version | None


@contextlib.contextmanager
def open_versions(
    workspace: Path, name: str, *, about: str = "", create: bool = True, finish: bool = True
) -> Iterator[Versions]:
    """The versions of an experiment's model in the workspace's store, after finishing what a kill interrupted.

    Args:
        create: make the store when there is none.
        finish: finish what a kill interrupted; readers need not be allowed to.

    Raises:
        ConfigError: there is no store, and none is to be made.
        ToolchainError: the store cannot be used.
    """
    place = place_of(workspace)
    if not place.server:
        if not create and not place.database.exists():
            raise ConfigError(
                f"{place.database} does not exist: nothing was registered here.",
                hint="Name the folder with --workspace, or the team's server by MLFLOW_TRACKING_URI.",
            )
        prepare(place.store)
    with mlflow_errors(place, REPEAT):
        versions = Versions(client_of(place, registry=True, then=REPEAT), place, name, about)
        if place.server and not create and versions.model() is None:
            raise ConfigError(
                f"{without_password(place.registry)} has no model {name!r}: nothing was registered there.",
                hint="See its registry: workbench ui",
            )
    if finish and (done := recover(versions)):
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
        now = versions.with_alias(CHAMPION)
        if number_of(now) != number_of(over):
            raise ConfigError(
                f"the champion of {versions.name!r} changed while this bundle was compared: it is "
                f"{_called(now)}, it was {_called(over)}.",
                hint="Nothing was moved. Compare with the new one: run the command again.",
            )
        if now is not None and now.number == version.number:
            raise ConfigError(f"version {version.number} of {versions.name!r} is the champion already.")
        before = now or former or versions.with_alias(PREVIOUS)
        kept = before is not None and before.number != version.number
        versions.tag(version.number, _REPLACED, str(number_of(before)) if kept else "")
        versions.tag(version.number, "promoted_at", _now())
        return _move(versions, "promotion", version, now, verdict_sha256=sha256_of(verdict))


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
        champion, previous = restorable(versions)
        if (number_of(champion), previous.number) != (number_of(over), to.number):
            raise ConfigError(
                f"champion and previous of {versions.name!r} changed while version {to.number} was checked: they are "
                f"{_called(champion)} and {_called(previous)}.",
                hint="Nothing was moved. Look at the registry, and run the command again.",
            )
        if champion is not None:
            versions.tag(champion.number, "rolled_back_at", _now())
            if previous.tags.get(_REPLACED) == str(champion.number):  # it is no way back any more
                versions.tag(previous.number, _REPLACED, "")
        return _move(versions, "rollback", previous, champion, reason=reason)


def recover(versions: Versions) -> str:
    """Make up for what a kill left undone: the alias previous, and a line in the log for a champion that it does not
    know of; says in words what was done, nothing when there was nothing to do."""
    if not _unsaid(versions):
        return ""
    with versions.writing():  # whoever is moving it just now holds the lock until it is done
        if not (lines := _unsaid(versions)):
            return ""
        champion = versions.with_alias(CHAMPION)
        _follow(versions)
        why = "found so: a command was killed, or somebody moved the alias"
        versions.note("recovery", champion, lines[-1]["release"].get("champion_after"), number_of(champion), reason=why)
        return f"champion is {_called(champion)}, which the log of releases did not say until now"


def _unsaid(versions: Versions) -> tuple[Line, ...]:
    """The log's lines where the last does not say who is champion."""
    lines = versions.releases().lines
    stands = number_of(versions.with_alias(CHAMPION))
    return lines if lines and lines[-1]["release"].get("champion_after") != stands else ()


def _move(versions: Versions, act: Act, to: Version, now: Version | None, **said: str) -> Moved:
    """Args: said: fields of the log's line."""
    versions.alias(CHAMPION, to.number)
    _follow(versions)
    versions.note(act, to, number_of(now), to.number, verdict="passed", **said)
    found = versions.with_alias(PREVIOUS)
    previous = None if found is None or CHAMPION in found.aliases else found
    return Moved(champion=versions.version(to.number), previous=previous, before=now)


def _follow(versions: Versions) -> None:
    """Set the alias previous to what the champion replaced; none where that was deleted since."""
    champion = versions.with_alias(CHAMPION)
    if champion is None or _REPLACED not in champion.tags:
        return
    wanted = champion.tags[_REPLACED]
    if wanted in {str(version.number) for version in versions.all()}:
        versions.alias(PREVIOUS, int(wanted))
        return
    with if_permitted() as refused:
        versions.client.delete_registered_model_alias(versions.name, PREVIOUS)
    if refused:  # who may only edit says it so: the champion has no previous but itself
        versions.alias(PREVIOUS, champion.number)


def _called(version: Version | None) -> str:
    return "none" if version is None else f"version {version.number}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
