"""Champion and previous: moved by a promotion or a rollback, in an order that a kill at any moment leaves recoverable.

A line of the log of releases is the one write by which champion moves; the aliases follow it, and no alias is taken
away before the other stands. Whoever opens the registry next finishes what was begun (`release_logs`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.tracking.place import Place, place_of, without_password
from workbench.tracking.release_logs import Move, Overtaken
from workbench.tracking.releases import Release
from workbench.tracking.server import check_reachable, if_permitted, insisted, todo_of
from workbench.tracking.store import client_of, mlflow_errors, prepare
from workbench.tracking.versions import (
    AGAIN,
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
    if place.server:
        versions = _on_server(place, name, about, create)
    else:
        if not create and not place.database.exists():
            raise ConfigError(
                f"{place.database} does not exist: nothing was registered here.",
                hint="Name the folder with --workspace, or the team's server by MLFLOW_TRACKING_URI.",
            )
        prepare(place.store)
        with mlflow_errors(AGAIN):
            versions = Versions(client_of(place), place, name, about)
    if finish and (done := recover(versions)):
        _log.warning("%s: %s.", name, done)
    yield versions


def _on_server(place: Place, name: str, about: str, create: bool) -> Versions:
    todo = f"{todo_of(place)} {REPEAT}"
    with mlflow_errors(todo, place.server):
        for address in dict.fromkeys((place.server, place.registry)):
            check_reachable(address, todo)
        versions = Versions(client_of(place), place, name, about)
        if not create and versions.model() is None:
            raise ConfigError(
                f"{without_password(place.registry)} has no model {name!r}: nothing was registered there.",
                hint="See its registry: workbench ui",
            )
    return versions


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
    return _until_first(lambda: _promote(versions, version, over, former, verdict))


def _promote(versions: Versions, version: Version, over: Version | None, former: Version | None, verdict: str) -> Moved:
    with versions.writing():
        _settle(versions)
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
        _move(
            versions,
            {version.number: {_REPLACED: str(before.number) if before else "", "promoted_at": _now()}},
            Release(
                act="promotion",
                version=version.number,
                manifest_sha256=version.manifest_sha256,
                champion_before=number_of(now),
                champion_after=version.number,
                verdict="passed",
                verdict_sha256=sha256_of(verdict),
                previous_after=kept.number if kept is not None and kept.number != version.number else None,
            ),
        )
        return Moved(champion=versions.version(version.number), previous=_previous(versions), before=now)


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
    return _until_first(lambda: _rollback(versions, to, over, reason))


def _rollback(versions: Versions, to: Version, over: Version | None, reason: str) -> Moved:
    with versions.writing():
        _settle(versions)
        champion, previous = restorable(versions)
        if (number_of(champion), previous.number) != (number_of(over), to.number):
            raise ConfigError(
                f"champion and previous of {versions.name!r} changed while version {to.number} was checked: they are "
                f"{_called(champion)} and {_called(previous)}.",
                hint="Nothing was moved. Look at the registry, and run the command again.",
            )
        earlier = previous.tags.get(_REPLACED, "")
        known = {version.number for version in versions.all()} - {number_of(champion), previous.number}
        _move(
            versions,
            {champion.number: {"rolled_back_at": _now()}} if champion is not None else {},
            Release(
                act="rollback",
                version=previous.number,
                manifest_sha256=previous.manifest_sha256,
                champion_before=number_of(champion),
                champion_after=previous.number,
                verdict="passed",
                reason=reason,
                previous_after=int(earlier) if earlier.isdecimal() and int(earlier) in known else None,
            ),
        )
        return Moved(champion=versions.version(previous.number), previous=_previous(versions), before=champion)


def _until_first(decide: Callable[[], Moved]) -> Moved:
    """Decide anew, from what stands then, where somebody else on the server was quicker."""
    while True:
        with contextlib.suppress(Overtaken):
            return decide()


def recover(versions: Versions) -> str:
    """Finish a move of aliases that was killed; says in words what was done, nothing when there was none."""
    with versions.errors():
        last = versions.log.last_move()
        if last is None or last.settled:
            return ""
    with versions.writing():  # whoever is moving them just now holds the lock until it is done
        return _settle(versions)


def _settle(versions: Versions) -> str:
    return versions.log.settle(lambda move: _follow(versions, move))


def _move(versions: Versions, tags: Mapping[int, Mapping[str, str]], release: Release) -> None:
    """Args:
    tags: of versions, by their numbers.
    """
    versions.note(release)
    for number, values in tags.items():
        for key, value in values.items():
            versions.tag(number, key, value)
    _settle(versions)


def _follow(versions: Versions, move: Move) -> None:
    """Set the aliases as the log says; those of versions that were deleted since stay away."""
    known = {version.number: version for version in versions.all()}
    if move.champion in known:
        insisted(lambda: versions.client.set_registered_model_alias(versions.name, CHAMPION, str(move.champion)))
        if _REPLACED not in known[move.champion].tags:  # its promotion was killed
            versions.tag(move.champion, _REPLACED, "" if move.previous is None else str(move.previous))
    _set_previous(versions, move.previous if move.previous in known else None)


def _set_previous(versions: Versions, number: int | None) -> None:
    if number is not None:
        insisted(lambda: versions.client.set_registered_model_alias(versions.name, PREVIOUS, str(number)))
        return
    with if_permitted() as refused:
        versions.client.delete_registered_model_alias(versions.name, PREVIOUS)
    champion = versions.with_alias(CHAMPION)
    if refused and champion is not None:  # who may only edit says it so: the champion has no previous but itself
        insisted(lambda: versions.client.set_registered_model_alias(versions.name, PREVIOUS, str(champion.number)))


def _previous(versions: Versions) -> Version | None:
    found = versions.with_alias(PREVIOUS)
    return None if found is None or CHAMPION in found.aliases else found


def _called(version: Version | None) -> str:
    return "none" if version is None else f"version {version.number}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
